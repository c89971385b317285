"""``flotilla rollouts``: changes of a deployment, and what one may do to them."""

from __future__ import annotations

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla

_reason = click.option("--reason", "-m", default="", help="Why; it is shown with the rollout.")


@click.group()
def rollouts() -> None:
    """Changes of deployments: how far they are; pause, resume, abort, try again."""


@rollouts.command("list")
@click.argument("model")
@click.option("--fleet", "-f", default="development", show_default=True)
@json_option
@client_command
def list_all(client: Flotilla, model: str, fleet: str, as_json: bool) -> None:
    """List the changes of MODEL on a fleet, newest first."""
    found = client.rollouts.all(client.deployment(model, fleet)["deployment"]["id"])
    rows = ([r["id"], r["kind"], r["phase"], r["created_by"], r["created_at"], r["phase_reason"]] for r in found)
    show(found, as_json, lambda: table(rows, ["ID", "KIND", "PHASE", "BY", "BEGUN", "REASON"]))


@rollouts.command("show")
@click.argument("rollout")
@json_option
@client_command
def show_one(client: Flotilla, rollout: str, as_json: bool) -> None:
    """Show what ROLLOUT (an id) changes, and how it stands."""
    found = client.rollouts.get(rollout)
    rows = [[name, value] for name, value in found.items() if not isinstance(value, dict | list) and value is not None]
    rows += [
        [when, f"version {route['version']} config {route['config']} {route['role']} {route['weight']} %"]
        for when, spec in (("before", found["spec_from"]), ("after", found["spec_to"]))
        for route in spec.get("routes", [])
    ]
    show(found, as_json, lambda: table(rows, ["FACT", "VALUE"]))


@rollouts.command()
@click.argument("rollout")
@json_option
@client_command
def stages(client: Flotilla, rollout: str, as_json: bool) -> None:
    """Show how far ROLLOUT (an id) is: what each stage waits for, or how long it took (seconds)."""
    found = client.rollouts.stages(rollout)
    rows = (
        [
            one["name"],
            one["state"],
            one["began_at"],
            "" if one["seconds"] is None else f"{one['seconds']:.1f}",
            one["gate"],
        ]
        for one in found["stages"]
    )
    show(found, as_json, lambda: table(rows, ["STAGE", "STATE", "BEGUN", "TOOK", "GATE"]))


@rollouts.command()
@click.argument("rollout")
@_reason
@json_option
@client_command
def pause(client: Flotilla, rollout: str, reason: str, as_json: bool) -> None:
    """Hold ROLLOUT (an id): it neither succeeds nor goes back by itself until it is resumed."""
    found = client.rollouts.pause(rollout, reason)
    show(found, as_json, lambda: f"{rollout}: {found['phase']}")


@rollouts.command()
@click.argument("rollout")
@_reason
@json_option
@client_command
def resume(client: Flotilla, rollout: str, reason: str, as_json: bool) -> None:
    """Let ROLLOUT (an id) go on; its deadline counts from now."""
    found = client.rollouts.resume(rollout, reason)
    show(found, as_json, lambda: f"{rollout}: {found['phase']}")


@rollouts.command()
@click.argument("rollout")
@_reason
@json_option
@client_command
def abort(client: Flotilla, rollout: str, reason: str, as_json: bool) -> None:
    """Stop ROLLOUT (an id) and put back what was there before."""
    found = client.rollouts.abort(rollout, reason)
    show(found, as_json, lambda: f"{rollout}: {found['phase']}")


@rollouts.command()
@click.argument("rollout")
@json_option
@client_command
def retry(client: Flotilla, rollout: str, as_json: bool) -> None:
    """Ask once more for what ROLLOUT (an id) wanted, when it failed or went back."""
    found = client.rollouts.retry(rollout)
    told = f"It waits for approval {found['approval']}." if found["approval"] else f"Rollout {found['rollout']}."
    show(found, as_json, lambda: told)
