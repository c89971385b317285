"""Models and versions."""

from __future__ import annotations

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.command()
@click.argument("model")
@json_option
@client_command
def versions(client: Flotilla, model: str, as_json: bool) -> None:
    """List the versions of MODEL."""
    found = client.versions(model)
    rows = ([v["number"] or "-", v["state"], v["size_bytes"], v["created_at"], v["state_reason"]] for v in found)
    show(found, as_json, lambda: table(rows, ["VERSION", "STATE", "BYTES", "CREATED", "REASON"]))


@click.command()
@json_option
@client_command
def models(client: Flotilla, as_json: bool) -> None:
    """List the models of the project."""
    found = client.models()
    show(found, as_json, lambda: table(([m["slug"], m["description"]] for m in found), ["MODEL", "DESCRIPTION"]))
