"""Deployments, traffic and nodes."""

from __future__ import annotations

import json
from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.commands.following import following, timeout_option
from flotilla.sdk import Flotilla, FollowFailed


@click.command()
@click.argument("model")
@click.option("--version", "-v", "named", required=True, help="Version to serve: a number or an alias.")
@click.option("--config", "-c", type=int, default=0, help="Config revision; the newest by default.")
@click.option("--fleet", "-f", default="development", show_default=True)
@click.option("--canary", type=click.IntRange(1, 99), help="Send only this percentage to the version.")
@click.option("--comment", "-m", default="", help="Why.")
@click.option("--plan", "plan_only", is_flag=True, help="Only show what would change.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it serves.")
@click.option("--wait-approval", is_flag=True, help="Where others must approve: wait for that as well.")
@timeout_option
@json_option
@client_command
def deploy(
    client: Flotilla,
    model: str,
    named: str,
    config: int,
    fleet: str,
    canary: int | None,
    comment: str,
    plan_only: bool,
    wait: bool,
    wait_approval: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Serve a version of MODEL on a fleet: all of the traffic, or a canary beside what serves now."""
    version = number_of(client, model, named)
    routes = wanted_routes(client, model, fleet, version, config, canary)
    if plan_only:
        show(plan := client.plan(model, fleet, routes), True, lambda: str(plan))
        return
    answer = client.deploy(model, fleet, routes, comment=comment)
    sentence = f"{model} version {version} serves on {fleet}."
    _finish(client, answer, wait, as_json, sentence, timeout=timeout, for_approval=wait_approval)


@click.command()
@click.argument("model")
@click.argument("shares", nargs=-1, required=True)
@click.option("--fleet", "-f", default="development", show_default=True)
@json_option
@client_command
def traffic(client: Flotilla, model: str, shares: tuple[str, ...], fleet: str, as_json: bool) -> None:
    """Split the traffic of MODEL: ``flotilla traffic sentiment 1=90 2=10``."""
    weights: dict[int, int] = {}
    for share in shares:
        version, separator, percent = share.partition("=")
        if not separator or not version.isdigit() or not percent.isdigit():
            raise click.BadParameter(f"{share!r} is not VERSION=PERCENT.")
        weights[int(version)] = int(percent)
    _finish(client, client.traffic(model, fleet, weights), True, as_json, "The traffic is split as asked.")


@click.command()
@click.argument("model")
@click.option("--fleet", "-f", default="development", show_default=True)
@json_option
@client_command
def rollback(client: Flotilla, model: str, fleet: str, as_json: bool) -> None:
    """Go back to what MODEL served before."""
    _finish(client, client.rollback(model, fleet), True, as_json, f"{model} is rolled back on {fleet}.")


@click.command()
@click.argument("model")
@click.argument("request_json", type=click.File("r"))
@click.option("--fleet", "-f", default="development", show_default=True)
@click.option("--version", "-v", "named", help="A number or an alias; by default the traffic split decides.")
@client_command
def infer(client: Flotilla, model: str, request_json: Any, fleet: str, named: str | None) -> None:
    """Try a deployment with a v2 JSON request read from a file, or from - for standard input."""
    version = number_of(client, model, named) if named is not None else None
    click.echo(json.dumps(client.infer(model, fleet, json.load(request_json), version=version), indent=2))


@click.command()
@json_option
@client_command
def nodes(client: Flotilla, as_json: bool) -> None:
    """List the serving nodes."""
    found = client.nodes()
    rows = ([n["name"], n["state"], "reachable" if n["is_reachable"] else "unreachable"] for n in found)
    show(found, as_json, lambda: table(rows, ["NODE", "STATE", "LEASE"]))


def number_of(client: Flotilla, model: str, named: str) -> int:
    """Return the number of a version that is named by number or alias."""
    return int(named) if named.isdecimal() else int(client.aliases.get(model, named)["version"])


def wanted_routes(
    client: Flotilla, model: str, fleet: str, version: int, config: int, canary: int | None
) -> list[dict[str, Any]]:
    """Return the routes that give a version all of the traffic, or a share beside what serves now."""
    wanted = {"version": version, "config": config, "role": "live", "weight": 100}
    if canary is None:
        return [wanted]
    live = [r for r in client.deployment(model, fleet)["routes"] if r["role"] == "live" and r["version"] != version]
    if not live:
        raise click.ClickException(f"Nothing else serves {model} on {fleet}: deploy without --canary.")
    beside = {key: live[0][key] for key in ("version", "config")}
    return [
        {**beside, "role": "live", "weight": 100 - canary},
        {**wanted, "role": "canary", "weight": canary},
    ]


def _finish(
    client: Flotilla,
    answer: dict[str, Any],
    wait: bool,
    as_json: bool,
    sentence: str,
    *,
    timeout: float = 300,
    for_approval: bool = False,
) -> None:
    """Say what came of a change; wait for its rollout, and for the approval of others only when asked to."""
    if answer.get("approval") and not for_approval:
        page = client.site_page(f"approvals/{answer['approval']}")
        text = f"Approval {answer['approval']} is needed. Plan: {answer['plan_digest']}\n{page}"
        show(answer, as_json, lambda: text)
        return
    if not wait:
        show(answer, as_json, lambda: "Accepted.")
        return
    with following(as_json, False, lambda _done: sentence) as outcome:
        # what the change answered stays at the top of the document
        outcome.add(**answer)
        try:
            found = client.follow_change(answer, client.follower(timeout, outcome.display.tell))
        except FollowFailed as error:
            outcome.add(document=error.document)
            raise
        outcome.add(rollout_phase=(found["rollout"] or {}).get("phase"))
