"""Models and versions as entries of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.commands.exit_codes import Exit
from flotilla.sdk import Flotilla

Json = dict[str, Any]


@click.command()
@click.argument("model")
@json_option
@client_command
def versions(client: Flotilla, model: str, as_json: bool) -> None:
    """List the versions of MODEL."""
    found = client.versions(model)
    rows = ([v["number"] or "-", v["state"], v["size_bytes"], v["created_at"], v["state_reason"]] for v in found)
    show(found, as_json, lambda: table(rows, ["VERSION", "STATE", "BYTES", "CREATED", "REASON"]))


@click.command()
@json_option
@client_command
def models(client: Flotilla, as_json: bool) -> None:
    """List the models of the project."""
    found = client.models()
    show(found, as_json, lambda: table(([m["slug"], m["description"]] for m in found), ["MODEL", "DESCRIPTION"]))


@click.group()
def model() -> None:
    """Describe, archive, restore and delete models."""


@model.command("show")
@click.argument("model")
@json_option
@client_command
def show_one(client: Flotilla, model: str, as_json: bool) -> None:
    """Show what is known about MODEL."""
    found = client.catalog.get(model)
    show(found, as_json, lambda: table(_facts(found), ["FACT", "VALUE"]))


@model.command()
@click.argument("model")
@click.option("--description", "-m", help="What it is for.")
@click.option("--task", help="What it does, such as text-classification; empty for none.")
@click.option("--owner", help="The member who answers for it.")
@json_option
@client_command
def change(client: Flotilla, /, model: str, as_json: bool, **given: str | None) -> None:
    """Change what is said about MODEL; what is not named stays."""
    facts = {name: value for name, value in given.items() if value is not None}
    if not facts:
        raise click.UsageError("Say what to change: --description, --task, --owner.")
    changed = client.catalog.update(model, **facts)
    show(changed, as_json, lambda: table(_facts(changed), ["FACT", "VALUE"]))


@model.command()
@click.argument("model")
@json_option
@client_command
def archive(client: Flotilla, model: str, as_json: bool) -> None:
    """Put MODEL away: it takes no versions and no deployments until it is restored."""
    found = client.catalog.archive(model)
    show(found, as_json, lambda: f"{model} is archived.")


@model.command()
@click.argument("model")
@json_option
@client_command
def restore(client: Flotilla, model: str, as_json: bool) -> None:
    """Bring MODEL back."""
    found = client.catalog.restore(model)
    show(found, as_json, lambda: f"{model} is back.")


@model.command()
@click.argument("model")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@client_command
def delete(client: Flotilla, model: str, yes: bool, as_json: bool) -> None:
    """Delete MODEL, which is archived, with its versions, configs, card and aliases."""
    impact = client.catalog.impact(model)
    if not yes:
        click.echo("\n".join(f"{name}: {value}" for name, value in impact.items()), err=True)
        click.confirm(f"Delete {model} with all of that?", abort=True, err=True)
    client.catalog.delete(model)
    show({"deleted": model, "impact": impact}, as_json, lambda: f"{model} is deleted.")


@click.command()
@click.argument("model")
@click.argument("version")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--to", "folder", type=click.Path(file_okay=False, path_type=Path), default=".", help="Where to put it [.]."
)
@json_option
@client_command
def download(client: Flotilla, model: str, version: str, paths: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Write the files of VERSION of MODEL (all, or those named) into a folder, each checked by its SHA-256."""
    try:
        written = client.catalog.download(model, version, folder, paths=paths)
    except OSError as error:
        raise CommandFailed(f"Cannot write: {error}") from None
    missing = set(paths) - {path.relative_to(folder).as_posix() for path in written}
    if missing:
        raise CommandFailed(f"{model} {version} has no file {', '.join(sorted(missing))}.", Exit.FAILED)
    show([str(path) for path in written], as_json, lambda: "\n".join(str(path) for path in written))


def _facts(found: Json) -> list[list[Any]]:
    return [[name, _text(value)] for name, value in found.items() if value not in (None, "", [], {})]


def _text(value: Any) -> str:
    return " ".join(str(value).split())
