"""``flotilla service-accounts``: accounts of machines."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.group("service-accounts")
def service_accounts() -> None:
    """Make, disable and delete accounts of machines. Their keys: flotilla keys --owner."""


@service_accounts.command("list")
@json_option
@client_command
def list_all(client: Flotilla, as_json: bool) -> None:
    """List the service accounts."""
    found = client.service_accounts.all()
    rows = (
        [a["username"], _state(a), a["site_role"], a["tokens_active"], a["projects_in"], a["last_used_at"] or "never"]
        for a in found
    )
    show(found, as_json, lambda: table(rows, ["NAME", "STATE", "SITE ROLE", "KEYS", "PROJECTS", "LAST USED"]))


@service_accounts.command("show")
@click.argument("account")
@json_option
@client_command
def show_one(client: Flotilla, account: str, as_json: bool) -> None:
    """Show ACCOUNT: its roles, its keys, and the rules by which CI jobs act as it."""
    found = client.service_accounts.get(account)
    show(found, as_json, lambda: _described(found))


@service_accounts.command()
@click.argument("account")
@click.option("--site-role", type=click.Choice(["none", "operator", "admin"]), default="none", show_default=True)
@json_option
@client_command
def create(client: Flotilla, account: str, site_role: str, as_json: bool) -> None:
    """Make ACCOUNT. Then give it a role (flotilla members set) and a key (flotilla keys create --owner)."""
    made = client.service_accounts.create(account, site_role=site_role)
    show(made, as_json, lambda: f"Service account {account} is made.")


@service_accounts.command()
@click.argument("account")
@json_option
@client_command
def disable(client: Flotilla, account: str, as_json: bool) -> None:
    """Disable ACCOUNT: its keys are refused, and its trust rules give none."""
    found = client.service_accounts.set_active(account, False)
    show(found, as_json, lambda: f"{account} is disabled.")


@service_accounts.command()
@click.argument("account")
@json_option
@client_command
def enable(client: Flotilla, account: str, as_json: bool) -> None:
    """Let ACCOUNT work again."""
    found = client.service_accounts.set_active(account, True)
    show(found, as_json, lambda: f"{account} works again.")


@service_accounts.command()
@click.argument("account")
@json_option
@client_command
def delete(client: Flotilla, account: str, as_json: bool) -> None:
    """Delete ACCOUNT: keys are revoked, roles and trust rules removed; the name stays in the history."""
    client.service_accounts.delete(account)
    show({"deleted": account}, as_json, lambda: f"{account} is deleted.")


def _state(account: dict[str, Any]) -> str:
    return "active" if account["is_active"] else "disabled"


def _described(found: dict[str, Any]) -> str:
    reach = found["reach"]
    rows = [["name", found["username"]], ["state", _state(found)], ["site role", found["site_role"]]]
    rows += [["role in " + one["project"], one["role"]] for one in reach["memberships"]]
    rows += [["key", f"flo_{one['public_id']} {one['name']}"] for one in reach["tokens"]]
    rows += [["trust rule", f"{one['project']}/{one['name']}, {one['repository']}"] for one in reach["trust_rules"]]
    rows += [["open approvals", reach["open_approvals"]], ["open uploads", reach["open_uploads"]]]
    return table(rows, ["WHAT", "VALUE"])
