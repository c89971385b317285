"""Models and versions as entries of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.commands.exit_codes import Exit
from flotilla.commands.pairs import Pair
from flotilla.sdk import Flotilla

Json = dict[str, Any]
Said = tuple[str, str]


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
@click.option("--search", default="", help="In name and description.")
@click.option("--tag", default="", help="A tag's name, or name=value.")
@click.option("--task", default="", help="What it does, such as text-classification.")
@click.option("--owner", default="", help="Who answers for it.")
@click.option("--state", type=click.Choice(["active", "archived"]), help="Only these.")
@json_option
@client_command
def models(client: Flotilla, /, search: str, tag: str, task: str, owner: str, state: str | None, as_json: bool) -> None:
    """List the models of the project."""
    asked = {"search": search, "tag": tag, "task": task, "owner__username": owner, "state": state or ""}
    found = client.models(**{name: value for name, value in asked.items() if value})
    rows = ([m["slug"], m["owner"], m["task"] or "-", _pairs(m["tags"]), m["description"]] for m in found)
    show(found, as_json, lambda: table(rows, ["MODEL", "OWNER", "TASK", "TAGS", "DESCRIPTION"]))


@click.group()
def model() -> None:
    """Make, describe, archive, restore and delete models."""


@model.command("show")
@click.argument("model")
@json_option
@client_command
def show_one(client: Flotilla, model: str, as_json: bool) -> None:
    """Show what is known about MODEL."""
    found = client.catalog.get(model)
    show(found, as_json, lambda: table(_facts(found), ["FACT", "VALUE"]))


_description = click.option("--description", "-m", help="What it is for.")
_task = click.option("--task", help="What it does, such as text-classification; empty for none.")
_tag = click.option("--tag", "tags", type=Pair(), multiple=True, help="Set this tag; repeatable.")
_link = click.option("--link", "links", type=Pair(), multiple=True, help="Where to read more: label=address; again.")


@model.command()
@click.argument("model")
@_description
@_task
@_tag
@_link
@json_option
@client_command
def create(
    client: Flotilla, /, model: str, tags: tuple[Said, ...], links: tuple[Said, ...], as_json: bool, **given: str | None
) -> None:
    """Make MODEL, empty; you own it. A push makes one that is not there, too."""
    facts = {name: value for name, value in given.items() if value is not None}
    made = client.catalog.create(model, **facts, tags=dict(tags), links=_labelled(dict(links)))
    show(made, as_json, lambda: table(_facts(made), ["FACT", "VALUE"]))


@model.command()
@click.argument("model")
@_description
@_task
@click.option("--owner", help="The member who answers for it.")
@_tag
@click.option("--without-tag", multiple=True, metavar="NAME", help="Take it away; repeatable.")
@_link
@click.option("--without-link", multiple=True, metavar="LABEL", help="Take it away; repeatable.")
@json_option
@client_command
def change(
    client: Flotilla,
    /,
    model: str,
    tags: tuple[Said, ...],
    without_tag: tuple[str, ...],
    links: tuple[Said, ...],
    without_link: tuple[str, ...],
    as_json: bool,
    **given: str | None,
) -> None:
    """Change what is said about MODEL; what is not named stays."""
    facts: Json = {name: value for name, value in given.items() if value is not None}
    if not (facts or tags or without_tag or links or without_link):
        raise click.UsageError("Say what to change: --description, --task, --owner, --tag, --link.")
    changed = client.catalog.change(
        model, lambda seen: {**facts, **_merged(seen, dict(tags), without_tag, dict(links), without_link)}
    )
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


def _merged(
    seen: Json, tags: dict[str, str], without_tag: tuple[str, ...], links: dict[str, str], without_link: tuple[str, ...]
) -> Json:
    """Return the tags and links that are there then, as far as they change."""
    facts: Json = {}
    if tags or without_tag:
        facts["tags"] = {name: value for name, value in {**seen["tags"], **tags}.items() if name not in without_tag}
    if links or without_link:
        there = {link["label"]: link["url"] for link in seen["links"]} | links
        facts["links"] = _labelled({label: url for label, url in there.items() if label not in without_link})
    return facts


def _labelled(links: dict[str, str]) -> list[Json]:
    return [{"label": label, "url": url} for label, url in links.items()]


def _pairs(tags: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" if value else name for name, value in sorted(tags.items())) or "-"


def _facts(found: Json) -> list[list[Any]]:
    return [[name, _text(value)] for name, value in found.items() if value not in (None, "", [], {})]


def _text(value: Any) -> str:
    return " ".join(str(value).split())
