"""``flotilla projects``: those of the caller, and new ones; what apply sets own in them."""

from __future__ import annotations

import click

from flotilla.commands.context import client_command, json_option, show, table
from flotilla.sdk import Flotilla


@click.group()
def projects() -> None:
    """List, make and describe projects. Members: flotilla members; limits: flotilla quotas, flotilla policies."""


@projects.command("list")
@json_option
@client_command
def list_all(client: Flotilla, as_json: bool) -> None:
    """List the projects that you see."""
    found = client.projects.all()
    rows = ([p["slug"], p["name"], p["created_at"], p["description"]] for p in found)
    show(found, as_json, lambda: table(rows, ["PROJECT", "NAME", "MADE", "DESCRIPTION"]))


@projects.command()
@click.argument("slug", metavar="PROJECT")
@click.option("--name", default="", help="What people read; the short name, unless given.")
@click.option("--description", "-m", default="", help="What it is for.")
@json_option
@client_command
def create(client: Flotilla, slug: str, name: str, description: str, as_json: bool) -> None:
    """Make PROJECT (site operators)."""
    made = client.projects.create(slug, name=name, description=description)
    show(made, as_json, lambda: f"Project {slug} is made.")


@projects.command()
@click.argument("slug", metavar="PROJECT")
@click.option("--name", help="What people read.")
@click.option("--description", "-m", help="What it is for.")
@json_option
@client_command
def change(client: Flotilla, slug: str, name: str | None, description: str | None, as_json: bool) -> None:
    """Change what is said about PROJECT."""
    given = {key: value for key, value in (("name", name), ("description", description)) if value is not None}
    if not given:
        raise click.UsageError("Say what to change: --name, --description.")
    changed = client.projects.update(slug, **given)
    show(changed, as_json, lambda: f"{slug}: {changed['name']}")
