"""Deployments, traffic, approvals and nodes."""

from __future__ import annotations

import json
from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.command()
@click.argument("model")
@click.option("--version", "-v", "named", required=True, help="Version to serve: a number or an alias.")
@click.option("--config", "-c", type=int, default=0, help="Config revision; the newest by default.")
@click.option("--fleet", "-f", default="development", show_default=True)
@click.option("--canary", type=click.IntRange(1, 99), help="Send only this percentage to the version.")
@click.option("--comment", "-m", default="", help="Why.")
@click.option("--plan", "plan_only", is_flag=True, help="Only show what would change.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it serves.")
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
    as_json: bool,
) -> None:
    """Serve a version of MODEL on a fleet: all of the traffic, or a canary beside what serves now."""
    version = _number(client, model, named)
    routes = _routes(client, model, fleet, version, config, canary)
    if plan_only:
        show(plan := client.plan(model, fleet, routes), True, lambda: str(plan))
        return
    answer = client.deploy(model, fleet, routes, comment=comment)
    _finish(client, answer, wait, as_json, f"{model} version {version} serves on {fleet}.")


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
@json_option
@client_command
def status(client: Flotilla, as_json: bool) -> None:
    """Show every deployment of the project."""
    found = client.deployments()
    rows = ([d["model"], d["fleet"], d["sync"], d["health"], _shares(d), d["health_reason"]] for d in found)
    show(found, as_json, lambda: table(rows, ["MODEL", "FLEET", "SYNC", "HEALTH", "TRAFFIC", "REASON"]))


@click.command()
@click.argument("model")
@click.argument("request_json", type=click.File("r"))
@click.option("--fleet", "-f", default="development", show_default=True)
@click.option("--version", "-v", "named", help="A number or an alias; by default the traffic split decides.")
@client_command
def infer(client: Flotilla, model: str, request_json: Any, fleet: str, named: str | None) -> None:
    """Try a deployment with a v2 JSON request read from a file, or from - for standard input."""
    version = _number(client, model, named) if named is not None else None
    click.echo(json.dumps(client.infer(model, fleet, json.load(request_json), version=version), indent=2))


@click.command()
@json_option
@client_command
def approvals(client: Flotilla, as_json: bool) -> None:
    """List open approval requests."""
    found = client.approvals()
    rows = ([a["id"], a["model"], a["environment"], a["requester"], a["plan_digest"][:12]] for a in found)
    show(found, as_json, lambda: table(rows, ["ID", "MODEL", "ENVIRONMENT", "BY", "PLAN"]))


@click.command()
@click.argument("approval")
@click.argument("decision", type=click.Choice(["approve", "request_changes", "reject"]))
@click.option("--plan", "plan_digest", required=True, help="Digest of the plan that you have read.")
@click.option("--comment", "-m", default="")
@json_option
@client_command
def review(client: Flotilla, approval: str, decision: str, plan_digest: str, comment: str, as_json: bool) -> None:
    """Decide on an approval request."""
    answer = client.review(approval, decision, plan_digest=plan_digest, comment=comment)
    show(answer, as_json, lambda: f"{approval}: {decision}")


@click.command()
@json_option
@client_command
def nodes(client: Flotilla, as_json: bool) -> None:
    """List the serving nodes."""
    found = client.nodes()
    rows = ([n["name"], n["state"], "reachable" if n["is_reachable"] else "unreachable"] for n in found)
    show(found, as_json, lambda: table(rows, ["NODE", "STATE", "LEASE"]))


def _number(client: Flotilla, model: str, named: str) -> int:
    """Return the number of a version that is named by number or alias."""
    return int(named) if named.isdecimal() else int(client.aliases.get(model, named)["version"])


def _routes(
    client: Flotilla, model: str, fleet: str, version: int, config: int, canary: int | None
) -> list[dict[str, Any]]:
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


def _finish(client: Flotilla, answer: dict[str, Any], wait: bool, as_json: bool, sentence: str) -> None:
    if answer.get("approval"):
        show(answer, as_json, lambda: f"Approval {answer['approval']} is needed. Plan: {answer['plan_digest']}")
        return
    if wait and answer.get("operation"):
        client.wait(answer)
    show(answer, as_json, lambda: sentence if wait else "Accepted.")


def _shares(deployment: dict[str, Any]) -> str:
    routes = deployment["spec"].get("routes", [])
    return " ".join(f"v{route['version']}={route['weight']}%" for route in routes) or "-"
