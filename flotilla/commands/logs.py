"""``flotilla logs``: what nodes write."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show
from flotilla.sdk import Flotilla

_tail = click.option("--tail", "-n", default=200, show_default=True, type=click.IntRange(1, 2000), help="Lines.")


@click.group()
def logs() -> None:
    """The newest lines of nodes' logs."""


@logs.command()
@click.argument("name")
@_tail
@json_option
@client_command
def node(client: Flotilla, name: str, tail: int, as_json: bool) -> None:
    """Print the log of node NAME. It names models of every project, so it takes a site role."""
    found = client.node_logs(name, tail=tail)
    show(found, as_json, lambda: _text(found))


@logs.command()
@click.argument("model")
@click.option("--fleet", "-f", default="development", show_default=True)
@_tail
@json_option
@client_command
def deployment(client: Flotilla, model: str, fleet: str, tail: int, as_json: bool) -> None:
    """Print what the nodes of MODEL on a fleet log about it."""
    found = client.deployment_logs(model, fleet, tail=tail)
    show(found, as_json, lambda: _text(found))


def _text(found: list[dict[str, Any]]) -> str:
    many = len(found) > 1
    lines = []
    for row in found:
        head = f"{row['node']}  " if many else ""
        lines += [f"{head}{line}" for line in row["lines"]]
        if row["error"]:
            lines.append(f"{row['node']}: {row['error']}")
    return "\n".join(lines)
