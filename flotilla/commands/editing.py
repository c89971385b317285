"""Texts in an editor: what was typed is never lost, and nothing is stored unasked."""

from __future__ import annotations

import difflib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from flotilla.commands.context import CommandFailed, describe
from flotilla.commands.exit_codes import Exit
from flotilla.sdk import ApiError

T = TypeVar("T")


def text_diff(before: str, after: str, name_before: str, name_after: str) -> list[str]:
    """Return a unified diff, empty when the texts are equal."""
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), name_before, name_after, lineterm=""))


def guarded(noun: str, text: str, form: str, ask: Callable[[], T]) -> T:
    """Return the answer; keep what was typed when there is none.

    Raises:
        CommandFailed: the console refused; the sentence says where the text is.
    """
    try:
        return ask()
    except ApiError as error:
        kept = keep(noun, text, form)
        if error.status == 412:
            sentence = f"Somebody stored another {noun} meanwhile. Your text is in {kept}"
            raise CommandFailed(sentence, Exit.CONFLICT) from None
        raise CommandFailed(f"{describe(error)}\nYour text is in {kept}") from None


def keep(noun: str, text: str, form: str) -> Path:
    """Write the text to a file that stays and return where it is."""
    with tempfile.NamedTemporaryFile("w", prefix=f"flotilla-{noun}-", suffix=f".{form}", delete=False) as file:
        file.write(text)
    return Path(file.name)


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask on the terminal; without one the answer is no."""
    return yes or (sys.stdin.isatty() and click.confirm(question, default=True, err=True))
