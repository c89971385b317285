"""Webhooks from a shell."""

from __future__ import annotations

from itertools import islice
from typing import IO

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.group()
def webhooks() -> None:
    """Tell receivers what happens in the project."""


@webhooks.command("list")
@json_option
@client_command
def list_all(client: Flotilla, as_json: bool) -> None:
    """List the webhooks."""
    found = client.webhooks.all()
    rows = ([w["name"], _state(w), w["origin"], w["format"], ",".join(w["events"])] for w in found)
    show(found, as_json, lambda: table(rows, ["NAME", "STATE", "SENDS TO", "FORMAT", "EVENTS"]))


@webhooks.command()
@click.argument("name")
@click.option("--url-file", type=click.File("r"), required=True, help="File with the address; - for standard input.")
@click.option("--event", "-e", "events", multiple=True, default=["*"], show_default=True, help="Name or group.")
@click.option("--format", type=click.Choice(["standard", "slack"]), default="standard", show_default=True)
@json_option
@client_command
def create(client: Flotilla, name: str, url_file: IO[str], events: tuple[str, ...], format: str, as_json: bool) -> None:
    """Make webhook NAME. The address may hold a secret, so it is read from a file."""
    made = client.webhooks.create(name, url_file.read().strip(), events=events, format=format)
    show(made, as_json, lambda: f"Signing secret, told only this once: {made['secret']}")


@webhooks.command()
@click.argument("name")
@click.option("--name", "other_name", help="Another name.")
@click.option("--url-file", type=click.File("r"), help="File with another address; - for standard input.")
@click.option("--event", "-e", "events", multiple=True, help="Only these from now on: name or group.")
@click.option("--format", type=click.Choice(["standard", "slack"]))
@click.option("--on/--off", "is_enabled", default=None, help="Off: nothing is sent until it is on again.")
@json_option
@client_command
def change(
    client: Flotilla,
    /,
    name: str,
    other_name: str | None,
    url_file: IO[str] | None,
    events: tuple[str, ...],
    format: str | None,
    is_enabled: bool | None,
    as_json: bool,
) -> None:
    """Change webhook NAME; what is not named stays."""
    url = url_file.read().strip() if url_file is not None else None
    given = {"name": other_name, "url": url, "events": [*events] or None, "format": format, "is_enabled": is_enabled}
    facts = {key: value for key, value in given.items() if value is not None}
    if not facts:
        raise click.UsageError("Say what to change: --name, --url-file, --event, --format, --on or --off.")
    changed = client.webhooks.change(name, **facts)
    show(changed, as_json, lambda: f"{changed['name']} is changed; it is {_state(changed)}.")


@webhooks.command("rotate-secret")
@click.argument("name")
@json_option
@client_command
def rotate_secret(client: Flotilla, name: str, as_json: bool) -> None:
    """Give webhook NAME a new signing secret and print it, this once; both sign for a while."""
    made = client.webhooks.rotate_secret(name)
    until = f"The one before it signs too until {made['previous_secret_until']}."
    show(made, as_json, lambda: f"Signing secret, told only this once: {made['secret']}\n{until}")


@webhooks.command()
@click.argument("name")
@json_option
@client_command
def test(client: Flotilla, name: str, as_json: bool) -> None:
    """Send a test event to webhook NAME; status 1 when it did not arrive."""
    delivery = client.webhooks.test(name)
    show(delivery, as_json, lambda: "It arrived." if delivery["state"] == "delivered" else _why(delivery))
    if delivery["state"] != "delivered":
        raise SystemExit(1)


@webhooks.command()
@click.argument("name")
@click.option("--state", type=click.Choice(["pending", "delivered", "failed", "cancelled"]), help="Only these.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@json_option
@client_command
def deliveries(client: Flotilla, name: str, state: str | None, limit: int, as_json: bool) -> None:
    """List the newest deliveries of webhook NAME."""
    found = [*islice(client.webhooks.deliveries(name, state=state or ""), limit)]
    rows = ([d["id"], d["event"], d["state"], d["attempts"], d["created_at"], _why(d)] for d in found)
    show(found, as_json, lambda: table(rows, ["ID", "EVENT", "STATE", "ATTEMPTS", "CREATED", "ANSWER"]))


@webhooks.command()
@click.argument("name")
@click.argument("delivery")
@json_option
@client_command
def replay(client: Flotilla, name: str, delivery: str, as_json: bool) -> None:
    """Deliver the event of DELIVERY to webhook NAME again."""
    again = client.webhooks.replay(name, delivery)
    show(again, as_json, lambda: f"{again['event']} is on its way again: {again['id']}")


@webhooks.command()
@click.argument("name")
@json_option
@client_command
def delete(client: Flotilla, name: str, as_json: bool) -> None:
    """Delete webhook NAME with the log of its deliveries."""
    client.webhooks.delete(name)
    show({"deleted": name}, as_json, lambda: f"{name} is deleted.")


def _state(webhook: dict[str, object]) -> str:
    if not webhook["is_enabled"]:
        return "off"
    return "failing" if webhook["failures"] else "active"


def _why(delivery: dict[str, object]) -> str:
    return str(delivery["last_error"] or delivery["last_status"] or "Not tried yet.")
