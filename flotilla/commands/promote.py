"""``flotilla promote``: what serves in one environment, on to the next."""

from __future__ import annotations

import sys
from typing import Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, table
from flotilla.commands.deployments import number_of, wanted_routes
from flotilla.commands.exit_codes import Exit
from flotilla.commands.following import following, json_lines_option, timeout_option
from flotilla.commands.push import deploy_and_follow
from flotilla.commands.terminal import say
from flotilla.sdk import Flotilla
from flotilla.sdk.quantities import counted


@click.command()
@click.argument("model")
@click.option("--from", "source", default="development", show_default=True, help="Fleet where it serves now.")
@click.option("--to", "target", default="production", show_default=True, help="Fleet where it shall serve.")
@click.option("--version", "-v", "named", help="A number or an alias, instead of what serves at --from.")
@click.option("--config", "-c", type=int, default=0, help="With --version: config revision; the newest by default.")
@click.option("--canary", type=click.IntRange(1, 99), help="Only this percentage of the traffic.")
@click.option("--comment", "-m", default="", help="What approvers read.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow approval and rollout.")
@timeout_option
@json_option
@json_lines_option
@client_command
def promote(
    client: Flotilla,
    model: str,
    source: str,
    target: str,
    named: str | None,
    config: int,
    canary: int | None,
    comment: str,
    yes: bool,
    wait: bool,
    timeout: float,
    as_json: bool,
    json_lines: bool,
) -> None:
    """Ask that what serves MODEL on one fleet serves on another: show the plan, ask, request approval, follow it."""
    if named is None:
        version, config = _serving(client, model, source)
    else:
        version = number_of(client, model, named)
    routes = wanted_routes(client, model, target, version, config, canary)
    plan = client.plan(model, target, routes)
    say(plan_text(plan), err=True)
    if plan["is_noop"]:
        with following(as_json, json_lines, lambda _done: f"{target} serves this already.") as outcome:
            outcome.add(plan=plan)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise CommandFailed("Nobody can be asked here: say --yes.", Exit.USAGE)
        click.confirm("Go ahead?", abort=True, err=True)
    said = f"{model} version {version} serves on {target}." if wait else "Asked."
    with following(as_json, json_lines, lambda _done: said) as outcome:
        outcome.add(plan=plan)
        follower = client.follower(timeout, outcome.display.tell)
        answer = client.deploy(model, target, routes, comment=comment or f"from {source}")
        outcome.add(change=answer)
        if wait:
            deploy_and_follow(client, outcome, follower, answer)


def plan_text(plan: dict[str, Any]) -> str:
    """Return a plan for people: shares before and after, nodes, warnings, whether others must approve."""
    shares = [
        [f"v{r['version']}", r["config"], r["role"], f"{r['weight_before']} %", f"{r['weight_after']} %"]
        for r in plan["routes"]
    ]
    nodes = [
        [n["name"], len(n["loads"]), len(n["keeps"]), len(n["unloads"]), f"{n['bytes_to_fetch'] / 2**20:.1f}"]
        for n in plan["nodes"]
    ]
    lines = [f"{plan['model']} on {plan['fleet']} ({plan['environment']}), plan {plan['plan_digest'][:12]}"]
    if shares:
        lines.append(table(shares, ["VERSION", "CONFIG", "ROLE", "NOW", "THEN"]))
    if nodes:
        lines.append(table(nodes, ["NODE", "LOADS", "KEEPS", "UNLOADS", "FETCHES MIB"]))
    lines += [f"warning: {warning}" for warning in plan["warnings"]]
    if plan["needs_approval"]:
        lines.append(f"{counted(plan['required_approvals'], 'approval')} needed. {plan['approval_reason']}".rstrip())
    return "\n".join(lines)


def _serving(client: Flotilla, model: str, fleet: str) -> tuple[int, int]:
    """Return version and config of what takes the traffic on a fleet; refuse what is not settled."""
    status = client.deployment(model, fleet)
    if status["rollout"] is not None:
        raise CommandFailed(f"A rollout of {model} on {fleet} is still under way: wait for it, or name --version.")
    live = [route for route in status["routes"] if route["role"] == "live"]
    if len(live) != 1 or status["health"] != "healthy":
        why = status["health_reason"] or f"{len(live)} live versions"
        raise CommandFailed(f"{model} on {fleet} is not one healthy version ({why}): name --version.")
    return int(live[0]["version"]), int(live[0]["config"])
