"""``flotilla config``: serving configs as text, from the shell and in an editor."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.commands.editing import confirmed, guarded, keep, text_diff
from flotilla.commands.exit_codes import Exit
from flotilla.commands.terminal import say
from flotilla.sdk import Flotilla

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_number = click.argument("number", type=click.IntRange(0), default=0)


@click.group()
def config() -> None:
    """Read, compare, edit and store serving configs of a model."""


@config.command("list")
@click.argument("model")
@json_option
@client_command
def list_all(client: Flotilla, model: str, as_json: bool) -> None:
    """List the revisions of MODEL, newest first."""
    found = client.configs.all(model)
    rows = ([c["number"], c["digest"][:12], c["author"], c["created_at"], c["comment"]] for c in found)
    show(found, as_json, lambda: table(rows, ["CONFIG", "DIGEST", "BY", "CREATED", "COMMENT"]))


@config.command()
@click.argument("model")
@_number
@click.option("--as", "form", type=click.Choice(["pbtxt", "json", "source"]), default="pbtxt", show_default=True)
@json_option
@client_command
def get(client: Flotilla, model: str, number: int, form: str, as_json: bool) -> None:
    """Print revision NUMBER of MODEL's config, by default the newest.

    ``--as source`` prints the text as it was uploaded, with its comments.
    """
    found = client.configs.get(model, number)
    show(found, as_json, lambda: _text(found, form).rstrip("\n"))


@config.command()
@click.argument("model")
@click.argument("file", type=_FILE)
@json_option
@client_command
def check(client: Flotilla, model: str, file: Path, as_json: bool) -> None:
    """Say what is wrong with FILE (config.pbtxt or JSON) as a config of MODEL, and what it would change on the nodes.

    Nothing is stored.
    """
    report = client.check_config(model, file.read_text(), kind=kind_of(file))
    show(report, as_json, lambda: _valid(report) if report["ok"] else _problems(report["errors"]))
    if not report["ok"]:
        raise SystemExit(int(Exit.FAILED))


@config.command()
@click.argument("model")
@click.argument("file", type=_FILE)
@click.option("--comment", "-m", default="", help="Why.")
@json_option
@client_command
def apply(client: Flotilla, model: str, file: Path, comment: str, as_json: bool) -> None:
    """Store FILE (config.pbtxt or JSON) as the config of MODEL; the same content again changes nothing."""
    revision = client.push_config(model, file.read_text(), kind=kind_of(file), comment=comment)
    show(revision, as_json, lambda: f"{model} config {revision['number']} ({revision['digest'][:12]})")


@config.command()
@click.argument("model")
@click.argument("before", type=click.IntRange(1), required=False)
@click.argument("after", type=click.IntRange(1), required=False)
@click.option("--file", type=_FILE, help="Compare with this file instead of a revision.")
@json_option
@client_command
def diff(client: Flotilla, model: str, before: int | None, after: int | None, file: Path | None, as_json: bool) -> None:
    """Compare two revisions of MODEL's config: by default the newest with the one before it.

    With --file: the newest, or revision BEFORE, with the file. Exit status 3 when they differ.
    """
    if file is not None:
        if after is not None:
            raise click.UsageError("Name one revision with --file.")
        old = client.configs.get(model, before or 0)
        report = client.check_config(model, file.read_text(), kind=kind_of(file))
        if report["body"] is None:
            raise CommandFailed(f"{file} cannot be read:\n{_problems(report['errors'])}")
        new = {**report, "number": str(file)}
    else:
        new = client.configs.get(model, after or 0)
        old = client.configs.get(model, before if before is not None else _before(new))
    lines = text_diff(old["pbtxt"], new["pbtxt"], f"{model} config {old['number']}", f"{model} config {new['number']}")
    document = {"before": old["number"], "after": new["number"], "differs": bool(lines), "diff": lines}
    show(document, as_json, lambda: "\n".join(lines) or "They are equal.")
    if lines:
        raise SystemExit(int(Exit.DIFFERS))


@config.command()
@click.argument("model")
@click.option("--as", "form", type=click.Choice(["pbtxt", "json"]), default="pbtxt", show_default=True)
@click.option("--comment", "-m", default="", help="Why.")
@click.option("--yes", is_flag=True, help="Store without asking.")
@json_option
@client_command
def edit(client: Flotilla, model: str, form: str, comment: str, yes: bool, as_json: bool) -> None:
    """Open the newest config of MODEL in $EDITOR, check it, show what changed, and store it.

    What you typed is never lost: on an error, or when somebody else stored a config meanwhile, it stays in a file.
    """
    seen, tag = client.configs.get_tagged(model)
    before = _text(seen, form)
    text = before
    while True:
        edited = click.edit(text, extension=f".{form}")
        if edited is None or edited.strip() == before.strip():
            return show({"changed": False}, as_json, lambda: "Nothing changed.")
        text = edited
        report = guarded("config", text, form, partial(client.check_config, model, text, kind=form))
        if report["ok"]:
            break
        say(_problems(report["errors"]), err=True)
        if not confirmed("Edit it again?", yes=False):
            raise CommandFailed(f"Not stored. Your text is in {keep('config', text, form)}")
    lines = text_diff(seen["pbtxt"], report["pbtxt"], f"{model} config {seen['number']}", f"{model} config (new)")
    if not lines:
        return show({"changed": False}, as_json, lambda: "It means the same; nothing is stored.")
    say("\n".join([*lines, *_effects(report)]), err=True)
    if not confirmed("Store it?", yes=yes):
        raise CommandFailed(f"Not stored. Your text is in {keep('config', text, form)}")
    store = partial(client.configs.create, kind=form, comment=comment, parent=seen["number"], if_match=tag)
    made = guarded("config", text, form, partial(store, model, text))
    return show(made, as_json, lambda: f"{model} config {made['number']} ({made['digest'][:12]})")


@config.command()
@click.argument("model")
@click.argument("number", type=click.IntRange(1))
@click.option("--comment", "-m", default="", help="Why; by default it names the revision.")
@json_option
@client_command
def revert(client: Flotilla, model: str, number: int, comment: str, as_json: bool) -> None:
    """Store the content of revision NUMBER of MODEL's config as the newest. Deploy it to use it."""
    made = client.configs.revert(model, number, comment=comment)
    show(made, as_json, lambda: f"{model} config {made['number']} ({made['digest'][:12]})")


@config.command()
@click.argument("source")
@click.argument("model")
@click.option("--number", type=click.IntRange(0), default=0, help="Revision of SOURCE; by default the newest.")
@click.option("--from-project", default="", help="The project of SOURCE, when it is another.")
@click.option("--comment", "-m", default="", help="Why; by default it names the source.")
@json_option
@client_command
def copy(
    client: Flotilla, source: str, model: str, number: int, from_project: str, comment: str, as_json: bool
) -> None:
    """Store a config of model SOURCE as the next config of MODEL. Inputs, outputs and backend stay MODEL's own."""
    made = client.configs.copy(source, model, number=number, project=from_project, comment=comment)
    show(made, as_json, lambda: f"{model} config {made['number']} ({made['digest'][:12]})")


def kind_of(file: Path) -> str:
    """Return how the file is written, by its name."""
    return "json" if file.suffix == ".json" else "pbtxt"


def _before(newest: dict[str, Any]) -> int:
    if newest["number"] < 2:
        raise CommandFailed("There is only one revision; name a file with --file.")
    return int(newest["number"]) - 1


def _text(found: dict[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(found["body"], indent=2) + "\n"
    if form == "source" and found["source_text"]:
        return str(found["source_text"])
    return str(found["pbtxt"])


def _valid(report: dict[str, Any]) -> str:
    return "\n".join(["The config is valid.", *_effects(report)])


def _effects(report: dict[str, Any]) -> list[str]:
    """Return a line for each deployment of the model: what would happen there if the config were deployed."""
    return [f"{one['served_name']} on {one['fleet']}: {_effect(one)}" for one in report["affects"]]


def _effect(one: dict[str, Any]) -> str:
    if one["is_same"]:
        return "it serves already; nothing would change."
    if not one["nodes"]:
        return "no node is there yet."
    now = f"now config {', '.join(map(str, one['configs']))}, {one['request_rate']:.1f} requests a second"
    return f"{', '.join(one['nodes'])} would load it beside what serves, then switch ({now})."


def _problems(errors: list[dict[str, str]]) -> str:
    return "\n".join(f"{problem['field'] or 'config'}: {problem['message']}" for problem in errors)
