"""Checks of versions from a shell."""

from __future__ import annotations

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.commands.exit_codes import Exit
from flotilla.sdk import Flotilla

_BAD = ("fail", "error")


@click.command()
@click.argument("model")
@click.argument("version")
@click.option("--again", metavar="KIND", default="", help="First make this check again: smoke, latency, config...")
@click.option("--timeout", default=600.0, show_default=True, type=click.FloatRange(1), help="Seconds for --again.")
@json_option
@client_command
def checks(client: Flotilla, model: str, version: str, again: str, timeout: float, as_json: bool) -> None:
    """Show the checks of VERSION of MODEL; with --again, the one that was made."""
    rows = [client.recheck(model, version, again, timeout)] if again else client.checks(model, version)
    shown = ([row["kind"], row["verdict"], row["summary"]] for row in rows)
    show(rows, as_json, lambda: table(shown, ["CHECK", "VERDICT", "SUMMARY"]))
    if again and rows[0]["verdict"] in _BAD:
        raise CommandFailed(f"{again}: {rows[0]['summary']}", Exit.CHECKS_FAILED)
