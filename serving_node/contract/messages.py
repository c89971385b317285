"""JSON in and out for the frozen dataclasses of the contract."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from enum import Enum
from typing import Any, Self

from serving_node.contract.errors import ContractError


class Message:
    """Base of a dataclass that travels as JSON.

    Fields may be of type str, int, float, bool, ``StrEnum``, ``dict[str, Any]`` (passed through), another message,
    ``tuple[X, ...]`` or ``X | None``.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready dicts and lists."""
        return typing.cast(dict[str, Any], _dump(self))

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Build the message from parsed JSON.

        Raises:
            ContractError: a field is missing, unknown or of the wrong type; ``field`` names it.
        """
        return typing.cast(Self, _build(cls, document, ""))


@functools.cache
def _hints(message: type) -> dict[str, Any]:
    return typing.get_type_hints(message)


def _dump(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _dump(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_dump(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value


def _build(expected: Any, value: Any, path: str) -> Any:
    """Return ``value`` as ``expected`` (a dataclass, tuple[X, ...], X | None, enum or JSON scalar)."""
    origin = typing.get_origin(expected)
    if origin in (types.UnionType, typing.Union):
        inner = [arg for arg in typing.get_args(expected) if arg is not type(None)]
        return None if value is None else _build(inner[0], value, path)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ContractError(f"{path or 'document'} must be a list", field=path)
        item_type = typing.get_args(expected)[0]
        return tuple(_build(item_type, item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ContractError(f"{path} must be an object", field=path)
        return value
    if dataclasses.is_dataclass(expected):
        return _build_dataclass(typing.cast(type, expected), value, path)
    return _build_scalar(expected, value, path)


def _build_dataclass(expected: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ContractError(f"{path or 'document'} must be an object", field=path)
    hints = _hints(expected)
    fields = {f.name: f for f in dataclasses.fields(expected)}
    prefix = f"{path}." if path else ""
    for name in value:
        if name not in fields:
            raise ContractError(f"unknown field {prefix}{name}", field=f"{prefix}{name}")
    arguments = {}
    for name, spec in fields.items():
        if name in value:
            arguments[name] = _build(hints[name], value[name], f"{prefix}{name}")
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise ContractError(f"missing field {prefix}{name}", field=f"{prefix}{name}")
    return expected(**arguments)


def _build_scalar(expected: Any, value: Any, path: str) -> Any:
    if issubclass(expected, Enum):
        try:
            return expected(value)
        except ValueError:
            raise ContractError(f"{path} has the unknown value {value!r}", field=path) from None
    if expected is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value, path)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise ContractError(f"{path} must be of type {expected.__name__}", field=path)
    return value


def _finite(value: float, path: str) -> float:
    try:
        number = float(value)
    except OverflowError:  # an integer beyond what a double holds
        number = math.inf
    if not math.isfinite(number):
        raise ContractError(f"{path} must be a finite number", field=path)
    return number
