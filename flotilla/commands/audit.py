"""The audit log from a shell: look, export, prove."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

F = TypeVar("F", bound=Callable[..., object])

_VERIFY_SECONDS = 3600


def _filters(function: F) -> F:
    for option in (
        click.option("--search", "-s", "q", help="Beginnings of words in who, what, which; or a client address."),
        click.option("--action", help="For example approval.review."),
        click.option("--actor", "actor_name", help="Name of who did it."),
        click.option("--object", "object_id", help="Id of what it was done to."),
    ):
        function = option(function)
    return function


def _given(**filters: str | None) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value}


@click.group()
def audit() -> None:
    """See, export and prove who did what."""


@audit.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@json_option
@client_command
def list_events(client: Flotilla, /, limit: int, as_json: bool, **filters: str | None) -> None:
    """List the newest events of the projects that the token may see."""
    found = [*islice(client.audit.events(**_given(**filters)), limit)]
    rows = ([e["created_at"], e["actor_name"], e["action"], e["object_type"], e["object_label"]] for e in found)
    show(found, as_json, lambda: table(rows, ["WHEN", "WHO", "ACTION", "KIND", "OBJECT"]))


@audit.command()
@_filters
@click.option("--output", "-o", type=click.File("wb", lazy=False), default="-", help="File; - for standard output.")
@client_command
def export(client: Flotilla, /, output: IO[bytes], **filters: str | None) -> None:
    """Write events as JSON lines, with the hash chain that seals them."""
    for line in client.audit.export(**_given(**filters)):
        output.write(line)


@audit.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@client_command
def verify(client: Flotilla, file: Path | None, as_json: bool) -> None:
    """Prove the hash chains of FILE, an export; without one, of what the server answers now.

    Status 1 when a chain does not hold, 2 when the file is no export. Whoever can rewrite the whole database can also
    rewrite whole chains: keep exports elsewhere and compare their last hashes.
    """
    if file is not None:
        with file.open("rb") as lines:
            status, said = _prove(lines)
    else:
        status, said = _prove(client.audit.export())
    document = {"ok": status == 0, "exit_status": status, "report": said.splitlines()}
    show(document, as_json, lambda: said.rstrip("\n"))
    raise SystemExit(status)


def _prove(lines: Iterable[bytes]) -> tuple[int, str]:
    """Give lines to the verifier, which runs as a process of its own: it is code of the domain, not of a client."""
    command = [sys.executable, "-m", "registry.domain.audit_chain"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False) as verifier:
        pipe, said = verifier.stdin, verifier.stdout
        assert pipe is not None
        assert said is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it has said why
                for line in lines:
                    pipe.write(line)
                pipe.close()
        except BaseException:
            verifier.kill()
            raise
        report = said.read().decode()
        return verifier.wait(_VERIFY_SECONDS), report
