"""``flotilla status``: what is served where, once or as it changes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.commands.exit_codes import Exit
from flotilla.commands.terminal import say
from flotilla.sdk import Flotilla


@click.command()
@click.argument("model", required=False)
@click.option("--fleet", "-f", help="Only on this fleet.")
@click.option("--watch", is_flag=True, help="Go on, and say when something changes; with --json a line each time.")
@click.option("--timeout", type=click.FloatRange(0), help="With --watch: seconds after which to stop.")
@json_option
@client_command
def status(
    client: Flotilla, model: str | None, fleet: str | None, watch: bool, timeout: float | None, as_json: bool
) -> None:
    """Show every deployment of the project; of one MODEL on one --fleet with its routes and nodes."""

    def read() -> Any:
        if model and fleet:
            return client.deployment(model, fleet)
        rows = client.deployments()
        return [d for d in rows if (not model or d["model"] == model) and (not fleet or d["fleet"] == fleet)]

    if not watch:
        found = read()
        show(found, as_json, lambda: _text(found))
        return
    _watch(client, read, timeout, as_json)


def _watch(client: Flotilla, read: Callable[[], Any], timeout: float | None, as_json: bool) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    topic = f"project:{client.project_document()['id']}"
    last = None
    try:
        for _event in client.changes(topic, deadline):
            found = read()
            text = json.dumps(found) if as_json else _text(found)
            if text != last:
                if last is not None and not as_json:
                    click.echo("\x1b[2J\x1b[H" if sys.stdout.isatty() else "", nl=not sys.stdout.isatty())
                say(text)
                sys.stdout.flush()
            last = text
    except KeyboardInterrupt:
        raise CommandFailed("Stopped.", Exit.INTERRUPTED) from None


def _text(found: Any) -> str:
    return _one(found) if isinstance(found, dict) else _all(found)


def _all(found: list[dict[str, Any]]) -> str:
    rows = ([d["model"], d["fleet"], d["sync"], d["health"], _shares(d), d["health_reason"]] for d in found)
    return table(rows, ["MODEL", "FLEET", "SYNC", "HEALTH", "TRAFFIC", "REASON"])


def _one(found: dict[str, Any]) -> str:
    deployment = found["deployment"]
    lines = [f"{deployment['model']} on {deployment['fleet']}: {found['sync']}, {found['health']}"]
    lines += [found[name] for name in ("sync_reason", "health_reason", "why_not_serving") if found[name]]
    routes = [[f"v{r['version']}", r["config"], r["role"], f"{r['weight']} %"] for r in found["routes"]]
    if routes:
        lines.append(table(routes, ["VERSION", "CONFIG", "ROLE", "TRAFFIC"]))
    nodes = [
        [n["name"], n["health"], f"v{u['version']}", u["state"], f"{u['percent']} %", u["reason"] or n["reason"]]
        for n in found["nodes"]
        for u in n["units"]
    ]
    if nodes:
        lines.append(table(nodes, ["NODE", "HEALTH", "VERSION", "STATE", "DONE", "REASON"]))
    rollout = found["rollout"] or found["last_rollout"]
    if rollout is not None:
        lines.append(f"rollout {rollout['kind']}: {rollout['phase']} {rollout['phase_reason']}".rstrip())
    return "\n".join(dict.fromkeys(lines))


def _shares(deployment: dict[str, Any]) -> str:
    routes = deployment["spec"].get("routes", [])
    return " ".join(f"v{route['version']}={route['weight']}%" for route in routes) or "-"
