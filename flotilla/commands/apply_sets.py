"""``flotilla apply-sets``: what ``flotilla apply --set`` owns, and what became of it."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

Json = dict[str, Any]

_site = click.option("--site", "is_site", is_flag=True, help="A set of the site, and not of the project.")


@click.group("apply-sets")
def apply_sets() -> None:
    """See what sets of declarative files own, and forget sets."""


@apply_sets.command("list")
@_site
@json_option
@client_command
def list_all(client: Flotilla, is_site: bool, as_json: bool) -> None:
    """List the sets of the project, or of the site."""
    found = client.apply_sets.all(is_site=is_site)
    rows = ([s["name"], len(s["members"]), s["applied_at"], s["applied_by"] or "-"] for s in found)
    show(found, as_json, lambda: table(rows, ["SET", "THINGS", "LAST RUN", "BY"]))


@apply_sets.command("show")
@click.argument("name")
@_site
@json_option
@client_command
def show_one(client: Flotilla, name: str, is_site: bool, as_json: bool) -> None:
    """Show what became of the things of set NAME since it was applied, and what pruning would do to each."""
    found = client.apply_sets.things(name, is_site=is_site)
    show(found, as_json, lambda: table(map(_row, found), ["KIND", "NAME", "STANDING", "IF PRUNED"]))


@apply_sets.command()
@click.argument("name")
@_site
@json_option
@client_command
def forget(client: Flotilla, name: str, is_site: bool, as_json: bool) -> None:
    """Forget set NAME; what it owned stays."""
    client.apply_sets.forget(name, is_site=is_site)
    show({"forgotten": name}, as_json, lambda: f"{name} is forgotten; what it owned stays.")


def _row(thing: Json) -> list[str]:
    touched = thing["touched"]
    standing = f"{thing['standing']} by {touched['by']}" if touched else thing["standing"]
    return [thing["kind"], thing["name"], standing, thing["if_pruned"] or "-"]
