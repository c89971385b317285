"""``flotilla fleet``: nodes, and how they join."""

from __future__ import annotations

from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.commands.environments import Length
from flotilla.commands.pairs import Pair
from flotilla.sdk import Flotilla

Json = dict[str, Any]


@click.group()
def fleet() -> None:
    """Take nodes in and out of service, and let new ones join."""


@fleet.command("nodes")
@click.option("--fleet", "-f", default="", help="Nodes of this fleet only.")
@json_option
@client_command
def nodes(client: Flotilla, fleet: str, as_json: bool) -> None:
    """List the nodes with what they serve."""
    found = client.fleet.nodes(fleet)
    header = ["NODE", "STATE", "TAKES WORK", "LEASE", "READY", "FAILED", "FLEETS"]
    show(found, as_json, lambda: table(map(_row, found), header))


@fleet.command()
@click.argument("node")
@json_option
@client_command
def cordon(client: Flotilla, node: str, as_json: bool) -> None:
    """Give NODE (a name or an id) nothing new; what it serves stays."""
    found = client.fleet.cordon(node)
    show(found, as_json, lambda: f"{node} takes nothing new.")


@fleet.command()
@click.argument("node")
@json_option
@client_command
def uncordon(client: Flotilla, node: str, as_json: bool) -> None:
    """Let NODE take part again, also when it drains."""
    found = client.fleet.uncordon(node)
    show(found, as_json, lambda: f"{node} takes part again.")


@fleet.command()
@click.argument("node")
@click.option("--deadline", type=click.IntRange(0, 86400), default=30, show_default=True, help="Seconds for requests.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@client_command
def drain(client: Flotilla, node: str, deadline: int, yes: bool, as_json: bool) -> None:
    """Take everything off NODE; running requests get the seconds of --deadline."""
    _ask(client, node, "Take everything off", yes)
    found = client.fleet.drain(node, deadline_seconds=deadline)
    show(found, as_json, lambda: f"{node} is {found['state']}.")


@fleet.command()
@click.argument("node")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@client_command
def retire(client: Flotilla, node: str, yes: bool, as_json: bool) -> None:
    """Take NODE out for good: its identity is refused, and it must join anew."""
    _ask(client, node, "Take out for good", yes)
    found = client.fleet.retire(node)
    show(found, as_json, lambda: f"{node} is {found['state']}.")


@fleet.command("join-tokens")
@json_option
@client_command
def join_tokens(client: Flotilla, as_json: bool) -> None:
    """List the unused join tokens; their secrets were shown once."""
    found = client.fleet.join_tokens()
    rows = ([t["id"], _labels(t["labels"]), t["created_at"], t["expires_at"]] for t in found)
    show(found, as_json, lambda: table(rows, ["ID", "LABELS", "MADE", "EXPIRES"]))


@fleet.command("join-token")
@click.option("--label", "labels", type=Pair(), multiple=True, help="A label of the node that joins; again for more.")
@click.option("--valid", type=Length(), default="24h", show_default=True, help="How long it may be used: 12h, 2d.")
@json_option
@client_command
def join_token(client: Flotilla, labels: tuple[tuple[str, str], ...], valid: int, as_json: bool) -> None:
    """Make a token with which one node joins, and print it; it is shown only this once."""
    if valid % 60:
        raise click.UsageError("A token is good for whole hours.")
    made = client.fleet.create_join_token(labels=dict(labels), valid_hours=valid // 60)
    show(made, as_json, lambda: str(made["token"]))


def _ask(client: Flotilla, node: str, what: str, yes: bool) -> None:
    """Show what is on the node and ask, unless that was answered."""
    if yes:
        return
    found = client.fleet.node(node)
    fleets = ", ".join(found["fleets"]) or "no fleet"
    click.echo(f"{found['name']} serves {found['units_ready']} model versions for {fleets}.", err=True)
    click.confirm(f"{what} {found['name']}?", abort=True, err=True)


def _row(node: Json) -> list[Any]:
    takes = "yes" if node["is_schedulable"] else "no"
    lease = "reachable" if node["is_reachable"] else "unreachable"
    fleets = ",".join(node["fleets"]) or "-"
    return [node["name"], node["state"], takes, lease, node["units_ready"], node["units_failed"], fleets]


def _labels(labels: Json) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or "-"
