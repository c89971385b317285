"""``flotilla export``, ``apply`` and ``diff``: a console as files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flotilla import settings
from flotilla.commands.context import CommandFailed, client_command, json_option
from flotilla.commands.exit_codes import Exit
from flotilla.commands.terminal import say
from flotilla.sdk import ApiError, Flotilla
from flotilla.sdk.quantities import counted

_FILES = click.option(
    "--file",
    "-f",
    "path",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="A YAML file, or a folder of them.",
)
_SET = click.option("--set", "set_name", help="Name of the set of files: what it owns is remembered.")


@click.command()
@click.option("--all-projects", is_flag=True, help="Every project that you may see.")
@click.option("--site/--no-site", default=True, show_default=True, help="Environments and fleets too.")
@json_option
@client_command
def export(client: Flotilla, all_projects: bool, site: bool, as_json: bool) -> None:
    """Print a project, with environments and fleets, as YAML documents for flotilla apply. No secrets."""
    from flotilla.declarative import applying
    from flotilla.declarative.documents import write_documents

    projects = [client.project]
    if all_projects:
        projects = sorted(str(row["slug"]) for row in client.transport.pages("projects/"))
    documents = applying.export(client.transport, projects, site=site)
    if as_json:
        rows = [{"kind": d.kind, "name": d.name, "project": d.project, "spec": dict(d.spec)} for d in documents]
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo(write_documents(documents), nl=False)


@click.command()
@_FILES
@_SET
@click.option("--prune", is_flag=True, help="With --set: also show what apply --prune would delete.")
@json_option
@client_command
def diff(client: Flotilla, path: Path, set_name: str | None, prune: bool, as_json: bool) -> None:
    """Show what apply would change; change nothing. Exit status 3 when it would change something."""
    _documents, changes, refused = _prepare(client, path, set_name, prune)
    _show(changes, refused, as_json)
    if refused:
        raise SystemExit(int(Exit.FAILED))
    if any(change.action not in ("same", "wait") for change in changes):
        raise SystemExit(int(Exit.DIFFERS))


@click.command()
@_FILES
@_SET
@click.option("--prune", is_flag=True, help="Delete what the set made before and its files no longer name.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@client_command
def apply(client: Flotilla, path: Path, set_name: str | None, prune: bool, yes: bool, as_json: bool) -> None:
    """Make the console as the documents say; what they leave out stays as it is.

    The server tries every change first and the plan is shown. A second run changes nothing. What somebody changed
    since the plan was made is a conflict (status 11): look again.
    """
    from flotilla.declarative import applying

    documents, changes, refused = _prepare(client, path, set_name, prune)
    todo = [change for change in changes if change.action not in ("same", "wait")]
    if refused:
        _show(changes, refused, as_json)
        raise CommandFailed("Nothing was changed: the console refuses a part of the plan.")
    if not as_json:
        _show(changes, refused, False)
    if todo and not yes:
        if not sys.stdin.isatty():
            raise CommandFailed("Nobody can be asked here: say --yes.", Exit.USAGE)
        deletes = sum(change.action == "delete" for change in todo)
        more = f", {deletes} of them deletions" if deletes else ""
        click.confirm(f"Make {counted(len(todo), 'change')}{more}?", abort=True, err=True)
    result = applying.apply(client.transport, changes, settings.inherited_environment())
    if set_name and result.failed is None:
        _remember(client, set_name, documents, prune)
    document = {
        "changes": [change.to_json() for change in changes],
        "done": [str(change.document) for change in result.done],
        "pending": result.pending,
        "failed": str(result.failed.document) if result.failed else None,
        "error": result.error,
    }
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        for row in result.pending:
            what = f"approval {client.site_page('approvals/' + row['approval'])}" if row["approval"] else "a rollout"
            click.echo(f"{row['document']} waits for {what}")
        click.echo(f"{counted(len(result.done), 'change')} made." if todo else "Nothing to change.")
    if result.failed is not None:
        sentence = f"{result.failed.document} ({result.failed.document.place}): {result.error}"
        left = len(todo) - len(result.done)
        status = Exit.CONFLICT if result.is_conflict else Exit.FAILED
        raise CommandFailed(f"{sentence}\n{counted(left, 'change was', 'changes were')} not made.", status)


def _prepare(client: Flotilla, path: Path, set_name: str | None, prune: bool) -> tuple[Any, Any, Any]:
    """Return documents, changes and what the server refuses of them."""
    from flotilla.declarative import applying
    from flotilla.declarative.documents import DocumentsRefused, read_documents
    from flotilla.declarative.kind import Refused
    from flotilla.declarative.kinds import SHAPES, SITE

    if prune and not set_name:
        raise click.UsageError("--prune deletes what a set owns: name it with --set.")
    try:
        documents = read_documents(path, SHAPES, SITE, client.project)
        changes = applying.plan(client.transport, documents)
        if prune and set_name:
            changes += applying.prune_plan(client.transport, _owned(client, set_name, documents), documents)
    except (DocumentsRefused, Refused) as error:
        raise CommandFailed(str(error), Exit.USAGE) from None
    return documents, changes, applying.dry_run(client.transport, changes, settings.inherited_environment())


def _show(changes: Sequence[Any], refused: Sequence[tuple[Any, str]], as_json: bool) -> None:
    from flotilla.declarative.plan import describe

    if as_json:
        problems = [{"document": str(change.document), "error": error} for change, error in refused]
        click.echo(json.dumps({"changes": [change.to_json() for change in changes], "refused": problems}, indent=2))
        return
    for change in changes:
        if change.action != "same":
            say("\n".join(describe(change)))
    same = sum(change.action == "same" for change in changes)
    click.echo(f"{len(changes) - same} to change, {same} as they should be.")
    for change, error in refused:
        say(f"refused: {change.document} ({change.document.place}): {error}", err=True)


def _places(documents: Sequence[Any], project: str) -> list[str]:
    """Return the projects of the documents and of the command, and "" for the site when they have anything there."""
    from flotilla.declarative.kinds import SITE

    found = {document.project for document in documents if document.project} | {project}
    return sorted(found) + ([""] if any(document.kind in SITE for document in documents) else [])


def _owned(client: Flotilla, name: str, documents: Sequence[Any]) -> list[tuple[str, str, str]]:
    owned = []
    for place in _places(documents, client.project):
        found = _read_set(client, place, name)
        if found is not None:
            owned += [(row["kind"], place, row["name"]) for row in found[0]["members"]]
    return owned


def _remember(client: Flotilla, name: str, documents: Sequence[Any], pruned: bool) -> None:
    """Note what the set owns: what its files name, and, without --prune, what it owned before."""
    from flotilla.declarative.applying import keys_of

    for place in _places(documents, client.project):
        found = _read_set(client, place, name)
        members = keys_of(documents, place)
        if found is not None and not pruned:
            members += [row for row in found[0]["members"] if row not in members]
        headers = {"If-Match": found[1]} if found is not None else {"If-None-Match": "*"}
        client.transport.send("PUT", _address(place, name), json={"members": members}, headers=headers)


def _read_set(client: Flotilla, place: str, name: str) -> tuple[dict[str, Any], str] | None:
    try:
        answer = client.transport.send("GET", _address(place, name))
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    return dict(answer.json()), answer.headers["ETag"]


def _address(place: str, name: str) -> str:
    return f"projects/{place}/apply-sets/{name}/" if place else f"apply-sets/{name}/"
