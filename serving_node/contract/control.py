"""Control messages between the control plane and a joined node: plain JSON, independent of transport.

``Desired`` goes to the node whole, ``Observed`` comes back. Unknown fields are refused, so that a newer
control plane never believes that an older node obeyed what it did not understand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from serving_node.contract.messages import Message
from serving_node.contract.signing import Signer
from serving_node.contract.states import RouteRole, UnitState

CONTRACT_VERSION = 1

SCRATCH_PREFIX = "~"
"""Begins the names of copies that are only measured: without routes, they answer nobody but the admin port."""


@dataclass(frozen=True, slots=True)
class FileRef(Message):
    """One file of a version: where it goes in the version folder and which content it has."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Unit(Message):
    """One loadable thing: a version under one config. ``unit`` is its id, stable for the same digests.

    ``config`` is ModelConfig as JSON with proto field names. Without ``code_permitted`` the node refuses to load a
    version that is code, see ``code_formats``. With a ``signer`` it refuses files that are not as that one signed them.
    """

    unit: str
    version: int
    config_digest: str
    config: dict[str, Any]
    manifest_digest: str
    files: tuple[FileRef, ...]
    keep_warm: bool = False
    code_permitted: bool = False
    signer: Signer | None = None


@dataclass(frozen=True, slots=True)
class Route(Message):
    """Part of a model's traffic that goes to one unit. ``weight`` 0..100; a model's weights need not sum to 100."""

    unit: str
    weight: int
    role: RouteRole = RouteRole.LIVE
    sample_percent: float = 0.0


@dataclass(frozen=True, slots=True)
class DesiredModel(Message):
    """A served name with its routes and units. ``sticky`` names the request header or parameter that pins a caller."""

    name: str
    routes: tuple[Route, ...]
    units: tuple[Unit, ...]
    sticky: str = ""


@dataclass(frozen=True, slots=True)
class Drain(Message):
    """Stop taking requests and finish what is running within the deadline."""

    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class Desired(Message):
    """The whole wanted state of one node. Lower generations of the same epoch are refused by the node."""

    epoch: int
    generation: int
    models: tuple[DesiredModel, ...] = ()
    drain: Drain | None = None


@dataclass(frozen=True, slots=True)
class Reason(Message):
    """Why something is not as wanted."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class ObservedUnit(Message):
    """What the node says about one unit. ``routed`` is true while requests may reach it.

    ``build_log``: the end of what was said when the environment of its code was built, if it has one of its own.
    """

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
    build_log: str = ""


@dataclass(frozen=True, slots=True)
class Observed(Message):
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
