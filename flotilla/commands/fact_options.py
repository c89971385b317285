"""Options that say what is known of a version: where it comes from, its metrics, its metadata, its parent."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

_SOURCE = {
    "git_sha": "Commit that the version was made from.",
    "git_ref": "Branch or tag of the commit.",
    "repository": "Address of the repository.",
    "ci_run": "Address of the CI run.",
    "author": "Who made it.",
    "dataset": "What it was trained on: a name or an address.",
}


class Metric(click.ParamType[tuple[str, float]]):
    """``NAME=NUMBER``."""

    name = "name=number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Return name and number."""
        key, separator, text = str(value).rpartition("=")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not separator or not key or not math.isfinite(number):
            self.fail(f"{value!r} is not NAME=NUMBER.", param, ctx)
        return key, number


class Fact(click.ParamType[tuple[str, Any]]):
    """``NAME=VALUE``; a value that reads as JSON is JSON, any other one a text."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Return name and value."""
        key, separator, text = str(value).partition("=")
        if not separator or not key:
            self.fail(f"{value!r} is not NAME=VALUE.", param, ctx)
        try:
            return key, json.loads(text, parse_constant=_no_constant)
        except ValueError:
            return key, text


class Parent(click.ParamType[dict[str, Any]]):
    """``VERSION`` of the same model, or ``MODEL:VERSION``; a version is a number or an alias."""

    name = "[model:]version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Return it as the API takes it."""
        model, separator, version = str(value).rpartition(":")
        if not version or (separator and not model):
            self.fail(f"{value!r} is not VERSION or MODEL:VERSION.", param, ctx)
        named: dict[str, Any] = {"version": int(version) if version.isdecimal() else version}
        return {**named, "model": model} if model else named


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """What the options said."""

    source: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    parent: dict[str, Any] | None = None

    def arguments(self) -> dict[str, Any]:
        """Return them as the SDK takes them."""
        return {"source": self.source, "metrics": self.metrics, "metadata": self.metadata, "parent": self.parent}


def fact_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options and give the function what they said, as ``facts``."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        said = {name: kwargs.pop(name) for name in _SOURCE}
        facts = VersionFacts(
            source={name: text for name, text in said.items() if text},
            metrics=dict(kwargs.pop("metrics")),
            metadata=dict(kwargs.pop("metadata")),
            parent=kwargs.pop("parent"),
        )
        return function(*args, facts=facts, **kwargs)

    options = [
        click.option(f"--{name.replace('_', '-')}", name, default="", help=text) for name, text in _SOURCE.items()
    ]
    options += [
        click.option("--metric", "metrics", type=Metric(), multiple=True, help="A figure about it; repeatable."),
        click.option("--metadata", type=Fact(), multiple=True, help="Anything else, as JSON or text; repeatable."),
        click.option("--parent", type=Parent(), help="Version that it was made from."),
    ]
    for option in reversed(options):
        wrapper = option(wrapper)
    return wrapper


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
