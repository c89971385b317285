"""What every client command shares: the client, the output form, errors as one sentence and exit status 1."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from flotilla import settings
from flotilla.sdk import ApiError, Flotilla, OperationFailed

P = ParamSpec("P")
R = TypeVar("R")


def client_command(function: Callable[Concatenate[Flotilla, P], R]) -> Callable[P, R]:
    """Add the connection options and give the function an open client."""

    @click.option("--url", help="The console. [env: FLOTILLA_URL]")
    @click.option("--token", help="API token; better in FLOTILLA_TOKEN or FLOTILLA_TOKEN_FILE.")
    @click.option("--project", "-p", help="Project. [env: FLOTILLA_PROJECT; default: default]")
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        where = settings.client_settings(
            _text(kwargs.pop("url", None)), _text(kwargs.pop("token", None)), _text(kwargs.pop("project", None))
        )
        try:
            with Flotilla(where.url, where.token, where.project) as client:
                return function(client, *args, **kwargs)
        except (ApiError, OperationFailed) as error:
            raise click.ClickException(str(error)) from None

    return wrapper


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def show(document: Any, as_json: bool, text: Callable[[], str]) -> None:
    """Print the document as JSON, or the text."""
    click.echo(json.dumps(document, indent=2) if as_json else text())


def table(rows: Iterable[Iterable[Any]], header: Iterable[str]) -> str:
    """Return aligned columns."""
    cells = [[str(cell) for cell in header], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
