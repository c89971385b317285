"""What others wrote, as a terminal may show it."""

from __future__ import annotations

import re
import sys

import click

# Control characters but line ends and tabs, and those that turn the direction of text: a comment or a log could move
# the cursor, hide what stands beside it or write the clipboard.
_HOSTILE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


def visible(text: str) -> str:
    r"""Return a text with what would steer a terminal written out: ``\x1b``, ``\u202e``."""
    return _HOSTILE.sub(_written_out, text)


def say(text: str, *, err: bool = False) -> None:
    """Print a text that may hold what others wrote; as it is where it goes to a file or another program."""
    click.echo(visible(text) if err or sys.stdout.isatty() else text, err=err)


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
