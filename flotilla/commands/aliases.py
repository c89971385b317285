"""Aliases of models from a shell."""

from __future__ import annotations

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.group()
def alias() -> None:
    """Names like champion that point at a version."""


@alias.command("list")
@click.argument("model")
@json_option
@client_command
def list_all(client: Flotilla, model: str, as_json: bool) -> None:
    """List the aliases of MODEL."""
    found = client.aliases.all(model)
    rows = ([a["name"], a["version"], a["state"], _protection(a), a["moved_by"], a["moved_at"]] for a in found)
    show(found, as_json, lambda: table(rows, ["ALIAS", "VERSION", "STATE", "PROTECTION", "BY", "MOVED"]))


@alias.command("set")
@click.argument("model")
@click.argument("name")
@click.argument("version")
@click.option("--protect/--no-protect", "protected", default=None, help="Only approvers may move it, or not any more.")
@click.option("--comment", "-m", default="", help="Why.")
@json_option
@client_command
def set_one(
    client: Flotilla, model: str, name: str, version: str, protected: bool | None, comment: str, as_json: bool
) -> None:
    """Point alias NAME of MODEL at VERSION, a number or another alias."""
    wanted = int(version) if version.isdecimal() else version
    found = client.aliases.set(model, name, wanted, protected=protected, comment=comment)
    show(found, as_json, lambda: f"{name} points at {model} v{found['version']}.")


@alias.command()
@click.argument("model")
@click.argument("name")
@json_option
@client_command
def delete(client: Flotilla, model: str, name: str, as_json: bool) -> None:
    """Delete alias NAME of MODEL. No deployment changes."""
    client.aliases.delete(model, name)
    show({"deleted": name}, as_json, lambda: f"{name} is deleted.")


def _protection(alias: dict[str, object]) -> str:
    if alias["is_computed"]:
        return "follows"
    return "protected" if alias["is_protected"] else "-"
