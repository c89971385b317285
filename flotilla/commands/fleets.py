"""``flotilla fleets``: which nodes belong together."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.commands.pairs import Pair
from flotilla.sdk import Flotilla

_title = click.option("--title", help="What people read; the short name, unless given.")
_labels = click.option("--label", "labels", type=Pair(), multiple=True, help="Nodes carry this label; again for more.")


@click.group()
def fleets() -> None:
    """Say which nodes belong together, by their labels."""


@fleets.command("list")
@json_option
@client_command
def list_all(client: Flotilla, as_json: bool) -> None:
    """List the fleets with their environments and the labels of their nodes."""
    found = client.fleets.all()
    rows = ([one["slug"], one["environment"], _selector(one), one["name"]] for one in found)
    show(found, as_json, lambda: table(rows, ["FLEET", "ENVIRONMENT", "LABELS", "NAME"]))


@fleets.command()
@click.argument("name")
@click.argument("environment")
@_title
@_labels
@json_option
@client_command
def create(
    client: Flotilla,
    /,
    name: str,
    environment: str,
    title: str | None,
    labels: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Make fleet NAME in ENVIRONMENT of all nodes that carry the labels; without labels, of every node."""
    made = client.fleets.create(name, environment, title=title or "", labels=dict(labels))
    show(made, as_json, lambda: f"{name}: {_selector(made)}")


@fleets.command()
@click.argument("name")
@_title
@_labels
@click.option("--every-node", is_flag=True, help="No label is asked for any more.")
@json_option
@client_command
def change(
    client: Flotilla,
    /,
    name: str,
    title: str | None,
    labels: tuple[tuple[str, str], ...],
    every_node: bool,
    as_json: bool,
) -> None:
    """Change fleet NAME; labels are given all at once.

    Nodes that leave it unload what it deploys, nodes that join load it, and requests that wait for approval end.
    """
    if labels and every_node:
        raise click.UsageError("Give --label or --every-node.")
    facts: dict[str, Any] = {"name": title} if title is not None else {}
    if labels or every_node:
        facts["selector"] = dict(labels)
    if not facts:
        raise click.UsageError("Say what to change: --title, --label or --every-node.")
    changed = client.fleets.update(name, **facts)
    show(changed, as_json, lambda: f"{name}: {_selector(changed)}")


@fleets.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@client_command
def delete(client: Flotilla, name: str, yes: bool, as_json: bool) -> None:
    """Delete fleet NAME, while nothing is deployed there; its nodes stay."""
    if not yes:
        click.confirm(f"Delete fleet {name}?", abort=True, err=True)
    client.fleets.delete(name)
    show({"deleted": name}, as_json, lambda: f"{name} is deleted.")


def _selector(fleet: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(fleet["selector"].items())) or "every node"
