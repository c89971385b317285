"""``flotilla card``: what people should know about a model, in Markdown."""

from __future__ import annotations

from functools import partial
from typing import IO

import click

from flotilla.commands.context import CommandFailed, client_command, json_option, show, table
from flotilla.commands.editing import confirmed, guarded, keep, text_diff
from flotilla.commands.exit_codes import Exit
from flotilla.commands.terminal import say
from flotilla.sdk import Flotilla

_FORM = "md"


@click.group()
def card() -> None:
    """Read, edit and store the card of a model."""


@card.command()
@click.argument("model")
@click.argument("number", type=click.IntRange(0), default=0)
@json_option
@client_command
def get(client: Flotilla, model: str, number: int, as_json: bool) -> None:
    """Print revision NUMBER of MODEL's card, by default the newest, as Markdown."""
    found = client.cards.get(model, number)
    show(found, as_json, lambda: str(found["text"]).rstrip("\n"))


@card.command()
@click.argument("model")
@json_option
@client_command
def history(client: Flotilla, model: str, as_json: bool) -> None:
    """List the revisions of MODEL's card, newest first."""
    found = client.cards.history(model)
    rows = ([c["number"], c["author"], c["created_at"], c["version"] or "-", c["comment"]] for c in found)
    show(found, as_json, lambda: table(rows, ["REVISION", "BY", "STORED", "README OF", "COMMENT"]))


@card.command("set")
@click.argument("model")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--comment", "-m", default="", help="Why.")
@json_option
@client_command
def set_one(client: Flotilla, model: str, file: IO[str], comment: str, as_json: bool) -> None:
    """Store FILE (Markdown; - for standard input) as the card of MODEL; the same text again changes nothing."""
    try:
        text = file.read()
    except UnicodeDecodeError:
        raise CommandFailed(f"{file.name} is not UTF-8 text.", Exit.USAGE) from None
    made = client.cards.save(model, text, comment=comment)
    show(made, as_json, lambda: f"{model} card {made['number']}")


@card.command()
@click.argument("model")
@click.option("--comment", "-m", default="", help="Why.")
@click.option("--yes", is_flag=True, help="Store without asking.")
@json_option
@client_command
def edit(client: Flotilla, model: str, comment: str, yes: bool, as_json: bool) -> None:
    """Open the card of MODEL in $EDITOR, show what changed, and store it.

    What you typed is never lost: on an error, or when somebody else stored a card meanwhile, it stays in a file.
    """
    seen, tag = client.cards.get_tagged(model)
    before, number = (str(seen["text"]), seen["number"]) if seen is not None else ("", 0)
    text = click.edit(before or f"# {model}\n", extension=f".{_FORM}")
    if text is None or text == before:
        return show({"changed": False}, as_json, lambda: "Nothing changed.")
    lines = text_diff(before, text, f"{model} card {number}", f"{model} card (new)")
    say("\n".join(lines), err=True)
    if not confirmed("Store it?", yes=yes):
        raise CommandFailed(f"Not stored. Your text is in {keep('card', text, _FORM)}")
    made = guarded("card", text, _FORM, partial(client.cards.save, model, text, comment=comment, if_match=tag))
    return show(made, as_json, lambda: f"{model} card {made['number']}")


@card.command()
@click.argument("model")
@click.argument("before", type=click.IntRange(1))
@click.argument("after", type=click.IntRange(1))
@json_option
@client_command
def diff(client: Flotilla, model: str, before: int, after: int, as_json: bool) -> None:
    """Compare revisions BEFORE and AFTER of MODEL's card. Exit status 3 when they differ."""
    old, new = client.cards.get(model, before), client.cards.get(model, after)
    lines = text_diff(old["text"], new["text"], f"{model} card {before}", f"{model} card {after}")
    document = {"before": before, "after": after, "differs": bool(lines), "diff": lines}
    show(document, as_json, lambda: "\n".join(lines) or "They are equal.")
    if lines:
        raise SystemExit(int(Exit.DIFFERS))
