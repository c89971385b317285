"""``flotilla quotas``: what a project may use."""

from __future__ import annotations

import re
from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

_SIZE = re.compile(r"([0-9]{1,15})\s*(|B|KiB|MiB|GiB|TiB)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class Size(click.ParamType[int]):
    """A number of bytes, such as 500GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail("Write it such as 500GiB: a whole number and B, KiB, MiB, GiB or TiB.", param, ctx)
        return int(found[1]) * _UNITS[found[2].lower()]


@click.group()
def quotas() -> None:
    """Read and change what a project may use."""


@quotas.command("show")
@json_option
@client_command
def show_all(client: Flotilla, as_json: bool) -> None:
    """Show the limits of the project and what is used."""
    found = client.quotas.get()
    show(found, as_json, lambda: _text(found))


@quotas.command("set")
@click.option("--bytes", "size", type=Size(), help="Files of all versions, such as 500GiB.")
@click.option("--versions", type=click.IntRange(0), help="Versions that were not refused or given up.")
@click.option("--nodes", type=click.IntRange(0), help="Nodes of the fleets that the project is deployed on.")
@json_option
@client_command
def set_some(client: Flotilla, size: int | None, versions: int | None, nodes: int | None, as_json: bool) -> None:
    """Change limits of the project; those left out stay. Takes nothing away that is there."""
    given = {"bytes": size, "versions": versions, "nodes": nodes}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if not limits:
        raise click.UsageError("Name a limit: --bytes, --versions or --nodes.")
    found = client.quotas.set(**limits)
    show(found, as_json, lambda: _text(found))


def _text(found: dict[str, dict[str, int]]) -> str:
    return table(([name, row["used"], row["limit"]] for name, row in found.items()), ["QUOTA", "USED", "LIMIT"])
