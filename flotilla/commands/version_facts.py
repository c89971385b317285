"""``flotilla version``: what is known of a version, and how it stands to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.commands.exit_codes import Exit
from flotilla.commands.fact_options import Fact, Metric
from flotilla.sdk import Flotilla

Json = dict[str, Any]
_PARTS = ("facts", "metrics", "signature", "files", "source", "checks", "configs", "metadata")


@click.group()
def version() -> None:
    """Read, describe, compare and rank versions of a model. VERSION is a number, an alias or an id."""


@version.command("show")
@click.argument("model")
@click.argument("version")
@json_option
@client_command
def show_one(client: Flotilla, model: str, version: str, as_json: bool) -> None:
    """Show what is known of VERSION of MODEL: state, source, metrics, metadata."""
    found = client.version(model, version)
    show(found, as_json, lambda: _described(found))


@version.command()
@click.argument("model")
@click.argument("version")
@click.option("--metric", "metrics", type=Metric(), multiple=True, help="Set this metric; repeatable.")
@click.option("--metadata", type=Fact(), multiple=True, help="Set this key, to JSON or a text; repeatable.")
@click.option("--without-metric", "no_metrics", multiple=True, metavar="NAME", help="Take it away; repeatable.")
@click.option("--without-metadata", "no_metadata", multiple=True, metavar="NAME", help="Take it away; repeatable.")
@json_option
@client_command
def annotate(
    client: Flotilla,
    model: str,
    version: str,
    metrics: Sequence[tuple[str, float]],
    metadata: Sequence[tuple[str, Any]],
    no_metrics: Sequence[str],
    no_metadata: Sequence[str],
    as_json: bool,
) -> None:
    """Set metrics and metadata of VERSION of MODEL; what is not named stays. Voids no approval."""
    if not (metrics or metadata or no_metrics or no_metadata):
        raise click.UsageError("Say what to set or to take away: --metric, --metadata, --without-...")
    changed = client.facts.annotate(
        model,
        version,
        metrics=dict(metrics),
        metadata=dict(metadata),
        without_metrics=no_metrics,
        without_metadata=no_metadata,
    )
    show(changed, as_json, lambda: _described(changed))


@version.command()
@click.argument("model")
@click.argument("before")
@click.argument("after")
@json_option
@client_command
def compare(client: Flotilla, model: str, before: str, after: str, as_json: bool) -> None:
    """Show what differs between versions BEFORE and AFTER of MODEL. Exit status 3 when something does."""
    found = client.facts.compare(model, before, after)
    rows = [
        [f"{part}.{row['name']}", _value(row["before"]), _value(row["after"]), _signed(row["change"])]
        for part in _PARTS
        for row in found[part]
        if row["before"] != row["after"]
    ]
    header = ["WHAT", f"V{found['before']['number']}", f"V{found['after']['number']}", "CHANGE"]
    show(found, as_json, lambda: table(rows, header) if rows else "They are equal.")
    if rows:
        raise SystemExit(int(Exit.DIFFERS))


@version.command()
@click.argument("model")
@click.argument("metric")
@click.option("--lowest", is_flag=True, help="The lowest value is the best, as of an error.")
@json_option
@client_command
def ranking(client: Flotilla, model: str, metric: str, lowest: bool, as_json: bool) -> None:
    """List the versions of MODEL that have METRIC, best first."""
    found = client.facts.ranking(model, metric, lowest_first=lowest)
    rows = ([row["number"], row["value"], row["state"], ",".join(row["aliases"]) or "-"] for row in found)
    show(found, as_json, lambda: table(rows, ["VERSION", metric.upper(), "STATE", "ALIASES"]))


@version.command()
@click.argument("model")
@click.argument("version")
@json_option
@client_command
def lineage(client: Flotilla, model: str, version: str, as_json: bool) -> None:
    """Show what VERSION of MODEL was made from, nearest first, and what was made from it."""
    found = client.facts.lineage(model, version)
    rows = [["from", _name(row), row["state"]] for row in found["ancestors"]]
    rows += [["into", _name(row), row["state"]] for row in found["children"]]
    show(found, as_json, lambda: table(rows, ["", "VERSION", "STATE"]) if rows else "No relatives are known.")


def _move(verb: str, help_text: str) -> click.Command:
    @click.argument("model")
    @click.argument("version")
    @click.option("--reason", "-m", default="", help="Why; others read it.")
    @json_option
    @client_command
    def command(client: Flotilla, model: str, version: str, reason: str, as_json: bool) -> None:
        moved = client.facts.move(model, version, verb, reason=reason)
        show(moved, as_json, lambda: f"{_name(moved)} is {moved['state']}.")

    return click.command(verb, help=help_text)(command)


for _verb, _help in (
    ("archive", "Put VERSION of MODEL away: nothing may serve it, and no alias point at it."),
    ("restore", "Bring an archived VERSION of MODEL back."),
    ("quarantine", "Let nothing new serve VERSION of MODEL; what serves it is shown as a danger."),
    ("abandon", "Give VERSION of MODEL up before it is ready; its files are released."),
):
    version.add_command(_move(_verb, _help))


def _described(found: Json) -> str:
    parent = found["parent"]
    rows: list[list[Any]] = [
        ["version", _name(found)],
        ["state", f"{found['state']} {found['state_reason']}".strip()],
        ["aliases", ", ".join(found["aliases"]) or "-"],
        ["format", found["format"] or "-"],
        ["size_bytes", found["size_bytes"]],
        ["digest", found["manifest_digest"] or "-"],
        ["author", f"{found['author']} {found['created_at']}"],
        ["parent", _name(parent) if parent else "-"],
    ]
    for part in ("source", "metrics", "metadata"):
        rows += [[f"{part}.{name}", _value(value)] for name, value in found[part].items()]
    return table(rows, ["FACT", "VALUE"])


def _name(row: Json) -> str:
    return f"{row['model']} v{row['number']}" if row["number"] else f"{row['model']} {row['id']}"


def _value(value: Any) -> str:
    if value is None:
        return "-"
    text = " ".join((value if isinstance(value, str) else str(value)).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _signed(change: float | None) -> str:
    return "" if change is None else f"{change:+g}"
