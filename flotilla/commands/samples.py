"""``flotilla samples``: what smoke inference asks a model, and what it expects."""

from __future__ import annotations

import json
from typing import IO, Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show
from flotilla.commands.exit_codes import Exit
from flotilla.sdk import Flotilla

_version = click.option("--version", "version", help="Of this version alone (number or alias), not of all.")


@click.group()
def samples() -> None:
    """Read and store the samples that versions of a model are tried with."""


@samples.command()
@click.argument("model")
@_version
@json_option
@client_command
def get(client: Flotilla, model: str, version: str | None, as_json: bool) -> None:
    """Print the samples of MODEL as JSON."""
    found = client.samples.get(model, version)
    show(found, as_json, lambda: json.dumps(found["samples"], indent=2, ensure_ascii=False))


@samples.command("set")
@click.argument("model")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@_version
@json_option
@client_command
def set_all(client: Flotilla, model: str, file: IO[str], version: str | None, as_json: bool) -> None:
    """Store FILE (JSON: a sample or a list of them; - for standard input) as the samples of MODEL."""
    try:
        read: Any = json.load(file)
    except ValueError as error:
        raise CommandFailed(f"{file.name} is no JSON: {error}", Exit.USAGE) from None
    made = client.samples.save(model, read if isinstance(read, list) else [read], version)
    show(made, as_json, lambda: f"{model}: {len(made['samples'])} samples")


@samples.command()
@click.argument("model")
@_version
@json_option
@client_command
def clear(client: Flotilla, model: str, version: str | None, as_json: bool) -> None:
    """Take the samples of MODEL away; requests are made up again."""
    made = client.samples.save(model, [], version)
    show(made, as_json, lambda: f"{model}: no samples")
