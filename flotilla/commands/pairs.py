"""``NAME=VALUE`` on the command line: labels of nodes, tags and links of models."""

from __future__ import annotations

from typing import Any

import click


class Pair(click.ParamType[tuple[str, str]]):
    """A name and a text, which may be empty."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return name and value."""
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not NAME=VALUE.", param, ctx)
        return key.strip(), text.strip()
