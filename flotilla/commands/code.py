"""The permission for nodes to run what is code in versions, from a shell."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

_HEAD = ["DEPLOYMENT", "FLEET", "ENVIRONMENT", "SHARE", "OTHERS", "REQUESTS/S"]


@click.group()
def code() -> None:
    """See and withdraw the permission for nodes to run the code in versions."""


@code.command("list")
@json_option
@client_command
def list_all(client: Flotilla, /, as_json: bool) -> None:
    """List the versions whose code nodes may run."""
    found = client.code.permitted()
    rows = [[f"{one['model']} v{one['number']}", one["code_permitted_by"], one["code_permitted_at"]] for one in found]
    show(found, as_json, lambda: table(rows, ["VERSION", "ALLOWED BY", "WHEN"]))


@code.command("show")
@click.argument("model")
@click.argument("version")
@json_option
@client_command
def show_one(client: Flotilla, /, model: str, version: str, as_json: bool) -> None:
    """Show the code in VERSION (number or alias) of MODEL, and what withdrawing its permission would stop."""
    found = client.code.read(model, version)
    show(found, as_json, lambda: _text(found))


@code.command()
@click.argument("model")
@click.argument("version")
@click.option("--reason", required=True, help="Shown to whoever tries to deploy it, and in the audit log.")
@json_option
@client_command
def withdraw(client: Flotilla, /, model: str, version: str, reason: str, as_json: bool) -> None:
    """Take the permission back: nodes unload the code of VERSION, and it is deployed nowhere."""
    found = client.code.withdraw(model, version, reason)
    show(found, as_json, lambda: _text(found))


@code.command()
@click.argument("model")
@click.argument("version")
@json_option
@client_command
def permit(client: Flotilla, /, model: str, version: str, as_json: bool) -> None:
    """Give a withdrawn permission again: where VERSION is deployed, nodes load it."""
    found = client.code.permit(model, version)
    show(found, as_json, lambda: _text(found))


@code.command("withdraw-all")
@click.option("--reason", required=True, help="Shown to whoever tries to deploy one, and in the audit log.")
@json_option
@client_command
def withdraw_all(client: Flotilla, /, reason: str, as_json: bool) -> None:
    """Take the permissions for all code of the project back."""
    count = client.code.withdraw_all(reason)
    show({"versions": count}, as_json, lambda: f"Permissions withdrawn: {count}")


def _text(found: dict[str, Any]) -> str:
    lines = [f"{file['path']}: {file['why']}" for file in found["files"]] or ["No code is known of it."]
    if found["withdrawn_at"]:
        lines.append(f"Withdrawn by {found['withdrawn_by']}, {found['withdrawn_at']}: {found['withdrawn_reason']}")
    elif found["permitted_at"]:
        lines.append(f"Allowed by {found['permitted_by']}, {found['permitted_at']}")
    effects = [
        [one["served_name"], one["fleet"], one["environment"], f"{one['weight']} %", f"{one['rest']} %",
         f"{one['request_rate']:.1f}"]
        for one in found["effects"]
    ]  # fmt: skip
    return "\n".join([*lines, *([table(effects, _HEAD)] if effects else [])])
