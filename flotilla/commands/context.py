"""What every client command shares: the client, the output form, errors as one sentence with a stable exit status."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from flotilla import settings
from flotilla.commands.exit_codes import Exit, exit_code_of
from flotilla.commands.terminal import say, visible
from flotilla.profiles import ProfileError
from flotilla.sdk import ApiError, Flotilla, OperationFailed

P = ParamSpec("P")
R = TypeVar("R")


class CommandFailed(click.ClickException):
    """Ends a command with one sentence and a status."""

    def __init__(self, message: str, status: Exit = Exit.FAILED) -> None:
        super().__init__(visible(message))
        self.status = status

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """The status, where click looks for it."""
        return int(self.status)


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which console, who asks, and in which project."""
    for option in reversed(
        (
            click.option("--url", help="The console. [env: FLOTILLA_URL]"),
            click.option("--token", help="API key; better in FLOTILLA_TOKEN or FLOTILLA_TOKEN_FILE."),
            click.option("--project", "-p", help="Project. [env: FLOTILLA_PROJECT; default: default]"),
            click.option("--profile", help="What flotilla login kept under this name. [env: FLOTILLA_PROFILE]"),
        )
    ):
        function = option(function)
    return function


def settings_of(options: dict[str, Any]) -> settings.ClientSettings:
    """Take the connection options out of a command's arguments and return what they mean."""
    given = [_text(options.pop(name, None)) for name in ("url", "token", "project", "profile")]
    try:
        return settings.client_settings(*given)
    except (ProfileError, OSError) as error:
        raise CommandFailed(str(error)) from None


def client_command(function: Callable[Concatenate[Flotilla, P], R]) -> Callable[P, R]:
    """Add the connection options and give the function an open client."""

    @connection_options
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        where = settings_of(kwargs)
        with failures(), Flotilla(where.url, where.token, where.project) as client:
            return function(client, *args, **kwargs)

    return wrapper


@contextmanager
def failures() -> Iterator[None]:
    """Turn what the SDK raises into one sentence and an exit status."""
    try:
        yield
    except ApiError as error:
        raise CommandFailed(describe(error), exit_code_of(error)) from None
    except (OperationFailed, ProfileError) as error:
        raise CommandFailed(str(error)) from None
    except KeyboardInterrupt:
        raise CommandFailed("Interrupted. What was begun goes on at the server.", Exit.INTERRUPTED) from None


def describe(error: ApiError) -> str:
    """Return the sentence, the fields, and what to look for in the log: the code and the request's id."""
    facts = [error.code, *([f"request {error.request_id}"] if error.request_id else [])]
    hint = "\nSign in with: flotilla login" if error.status == 401 else ""
    return f"{error} [{', '.join(facts)}]{hint}"


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def show(document: Any, as_json: bool, text: Callable[[], str]) -> None:
    """Print the document as JSON, or the text."""
    say(json.dumps(document, indent=2) if as_json else text())


def table(rows: Iterable[Iterable[Any]], header: Iterable[str]) -> str:
    """Return aligned columns, a line for each row whatever its cells hold."""
    cells = [[str(cell) for cell in header], *([" ".join(str(cell).splitlines()) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
