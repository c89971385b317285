"""What a field of a document may hold. Reading keeps the line of everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import yaml


@dataclass(slots=True)
class Problems:
    """What is wrong with one file, as ``file:line: sentence``."""

    file: str
    found: list[str] = field(default_factory=list)

    def say(self, node: yaml.Node, sentence: str) -> None:
        """Note a problem at the place of a node."""
        self.found.append(f"{self.file}:{node.start_mark.line + 1}: {sentence}")


class Type(Protocol):
    """Reads one node; says what is wrong and returns None then."""

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the value."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text; ``choices`` empty: any."""

    choices: tuple[str, ...] = ()

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the text. What YAML takes for something else (yes, 1.0) must be quoted."""
        value = _scalar(node)
        if not isinstance(value, str):
            return problems.say(node, f"{path} must be a text; quote it.")
        if self.choices and value not in self.choices:
            return problems.say(node, f"{path} must be one of: {', '.join(repr(choice) for choice in self.choices)}.")
        return value


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false."""

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the truth value."""
        value = _scalar(node)
        return value if isinstance(value, bool) else problems.say(node, f"{path} must be true or false.")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds."""

    low: int = 0
    high: int = 2**53

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the number."""
        value = _scalar(node)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            return problems.say(node, f"{path} must be a whole number from {self.low} to {self.high}.")
        return value


@dataclass(frozen=True, slots=True)
class Maybe:
    """A value, or null for none."""

    of: Type

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the value; None for null."""
        return None if _scalar(node) is None else self.of.read(node, path, problems)


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the number."""
        value = _scalar(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return problems.say(node, f"{path} must be a number.")
        return value


@dataclass(frozen=True, slots=True)
class Either:
    """A text or a whole number: a version by alias or by number."""

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the text or the number."""
        value = _scalar(node)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            return problems.say(node, f"{path} must be a number or a name.")
        return value


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    of: Type

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the list."""
        if not isinstance(node, yaml.SequenceNode):
            return problems.say(node, f"{path} must be a list.")
        return [self.of.read(child, f"{path}[{index}]", problems) for index, child in enumerate(node.value)]


@dataclass(frozen=True, slots=True)
class Table:
    """Names with values."""

    of: Type

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the table."""
        pairs = _pairs(node, path, problems)
        return None if pairs is None else {k: self.of.read(child, f"{path}.{k}", problems) for k, child in pairs}


@dataclass(frozen=True, slots=True)
class Shape:
    """Known fields with their types. ``required`` must be there; ``defaults`` stand for what is left out."""

    fields: Mapping[str, Type]
    required: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the fields that are given, with the defaults of those that are not."""
        pairs = _pairs(node, path, problems)
        if pairs is None:
            return None
        found = dict(self.defaults)
        for name, child in pairs:
            if name not in self.fields:
                known = ", ".join(self.fields)
                problems.say(child, f"{path} has no field {name!r}; there are: {known}.")
                continue
            found[name] = self.fields[name].read(child, f"{path}.{name}" if path else name, problems)
        for name in sorted(self.required - found.keys()):
            problems.say(node, f"{path or 'the document'} needs the field {name!r}.")
        return found


@dataclass(frozen=True, slots=True)
class Anything:
    """Whatever JSON can say."""

    def read(self, node: yaml.Node, path: str, problems: Problems) -> Any:
        """Return the value; dates and other things that JSON has no words for are refused."""
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, f"{path}[{index}]", problems) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            pairs = _pairs(node, path, problems) or []
            return {name: self.read(child, f"{path}.{name}", problems) for name, child in pairs}
        value = _scalar(node)
        if value is not None and not isinstance(value, str | int | float | bool):
            return problems.say(node, f"{path} is nothing that JSON knows; quote it.")
        return value


def _scalar(node: yaml.Node) -> Any:
    """Return the value of a scalar node as YAML reads it; the node itself when it is none."""
    if not isinstance(node, yaml.ScalarNode):
        return node
    try:
        return _Scalars.construct(node)
    except (yaml.YAMLError, ValueError):
        return node


class _Scalars:
    @staticmethod
    def construct(node: yaml.ScalarNode) -> Any:
        return yaml.constructor.SafeConstructor().construct_object(node)


def _pairs(node: yaml.Node, path: str, problems: Problems) -> list[tuple[str, yaml.Node]] | None:
    """Return name and node of each entry; a name that comes twice is refused."""
    if not isinstance(node, yaml.MappingNode):
        problems.say(node, f"{path or 'the document'} must have fields.")
        return None
    found: dict[str, yaml.Node] = {}
    for key, child in node.value:
        name = _scalar(key)
        if not isinstance(name, str):
            problems.say(key, f"A name in {path or 'the document'} must be a text; quote it.")
        elif name in found:
            problems.say(key, f"{path}.{name} is there twice.".lstrip("."))
        else:
            found[name] = child
    return list(found.items())
