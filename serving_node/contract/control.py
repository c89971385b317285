"""Control messages between the control plane and a joined node: plain JSON, independent of transport.

``Desired`` goes to the node whole, ``Observed`` comes back. Unknown fields are refused, so that a newer
control plane never believes that an older node obeyed what it did not understand.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Self

from serving_node.contract.errors import ContractError
from serving_node.contract.states import RouteRole, UnitState

CONTRACT_VERSION = 1


class _Message:
    """JSON in and out for the dataclasses below."""

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


@dataclass(frozen=True, slots=True)
class FileRef(_Message):
    """One file of a version: where it goes in the version folder and which content it has."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Unit(_Message):
    """One loadable thing: a version under one config. ``unit`` is its id, stable for the same digests.

    ``config`` is ModelConfig as JSON with proto field names.
    """

    unit: str
    version: int
    config_digest: str
    config: dict[str, Any]
    manifest_digest: str
    files: tuple[FileRef, ...]
    keep_warm: bool = False


@dataclass(frozen=True, slots=True)
class Route(_Message):
    """Part of the traffic of a model that goes to one unit. ``weight`` 0..100; weights of a model need not sum to 100."""

    unit: str
    weight: int
    role: RouteRole = RouteRole.LIVE
    sample_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class DesiredModel(_Message):
    """A served name with its routes and units. ``sticky`` names the request header or parameter that pins a caller."""

    name: str
    routes: tuple[Route, ...]
    units: tuple[Unit, ...]
    sticky: str = ""


@dataclass(frozen=True, slots=True)
class Drain(_Message):
    """Stop taking requests and finish what is running within the deadline."""

    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class Desired(_Message):
    """The whole wanted state of one node. Lower generations of the same epoch are refused by the node."""

    epoch: int
    generation: int
    models: tuple[DesiredModel, ...] = ()
    drain: Drain | None = None


@dataclass(frozen=True, slots=True)
class Reason(_Message):
    """Why something is not as wanted."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class ObservedUnit(_Message):
    """What the node says about one unit. ``routed`` is true while requests may reach it."""

    name: str
    unit: str
    version: int
    state: UnitState
    reason: Reason | None = None
    bytes_done: int = 0
    bytes_total: int = 0
    memory_bytes: int = 0
    load_seconds: float = 0.0
    manifest_digest: str = ""
    routed_weight: int = 0


@dataclass(frozen=True, slots=True)
class Observed(_Message):
    """What a node says about itself. ``sequence`` grows with each change: long-poll with ``after=sequence``.

    ``generation_applied`` equals ``generation_seen`` once every unit is ready or failed for good and routes are set.
    """

    node: str
    epoch: int
    generation_seen: int
    generation_applied: int
    sequence: int = 0
    desired_digest: str = ""
    models: tuple[ObservedUnit, ...] = ()
    inventory: dict[str, Any] = field(default_factory=dict)
    uptime_seconds: float = 0.0
    draining: bool = False


def _dump(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _dump(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_dump(item) for item in value]
    if isinstance(value, UnitState | RouteRole):
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
    hints = typing.get_type_hints(expected)
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
    if expected in (UnitState, RouteRole):
        try:
            return expected(value)
        except ValueError:
            raise ContractError(f"{path} has the unknown value {value!r}", field=path) from None
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise ContractError(f"{path} must be of type {expected.__name__}", field=path)
    return value
