"""``flotilla operations``: long work, whoever began it."""

from __future__ import annotations

from itertools import islice

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.commands.following import following, json_lines_option, timeout_option
from flotilla.sdk import Flotilla, Step


@click.group()
def operations() -> None:
    """Long work: checks, rollouts, measurements."""


@operations.command("list")
@click.option("--state", type=click.Choice(["pending", "running", "succeeded", "failed", "cancelled"]))
@click.option("--kind", help="validate_version, deploy, infer, bench_model...")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@json_option
@client_command
def list_all(client: Flotilla, state: str | None, kind: str | None, limit: int, as_json: bool) -> None:
    """List operations, newest first."""
    found = [*islice(client.operations(state=state or "", kind=kind or ""), limit)]
    rows = ([o["id"], o["kind"], o["state"], f"{o['progress_percent']} %", o["actor"], o["message"]] for o in found)
    show(found, as_json, lambda: table(rows, ["ID", "KIND", "STATE", "DONE", "BY", "MESSAGE"]))


@operations.command("show")
@click.argument("operation")
@json_option
@client_command
def show_one(client: Flotilla, operation: str, as_json: bool) -> None:
    """Show an operation with its log."""
    found = client.operation(operation)
    error = (found["error"] or {}).get("message", "")
    facts = f"{found['kind']} {found['state']} {found['progress_percent']} % {error or found['message']}"
    show(found, as_json, lambda: "\n".join([facts.rstrip(), *([found["log"].rstrip()] if found["log"] else [])]))


@operations.command()
@click.argument("operation")
@json_option
@client_command
def cancel(client: Flotilla, operation: str, as_json: bool) -> None:
    """Ask an operation to stop."""
    found = client.cancel(operation)
    show(found, as_json, lambda: f"{operation}: {found['state']}")


@operations.command()
@click.argument("operation")
@timeout_option
@json_option
@json_lines_option
@client_command
def wait(client: Flotilla, operation: str, timeout: float, as_json: bool, json_lines: bool) -> None:
    """Wait until an operation has ended; the exit status says how."""
    with following(as_json, json_lines, lambda done: str(done["operation"]["message"] or "Done.")) as outcome:
        link = client.site_page(f"operations/{operation}")
        found = client.follower(timeout, outcome.display.tell).operation(
            operation, "operation", link=link, verdict="operation_failed"
        )
        outcome.display.tell(Step("operation", "done", str(found["message"] or "succeeded"), 100, link))
        outcome.add(operation=found)
