"""What the node says about itself and its models, in the words of the v2 protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving_node.contract.states import ModelState


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """One input or output of a model. ``shape`` has -1 for variable dimensions, the batch dimension included."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model as clients see it. ``versions`` are the ready versions, or the one that was asked for."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True)
class OutputClasses:
    """How outputs of a model are classified: whether rows are classified one by one, and the names of the classes."""

    has_rows: bool
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """The server as clients see it."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One row of the repository index. ``version`` and ``state`` are empty for a model that was never loaded."""

    name: str
    version: str = ""
    state: ModelState | None = None
    reason: str = ""
