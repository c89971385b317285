"""Measuring a version: which grid may be asked for, what is loaded and sent, what the answers come to. Pure."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from registry.domain.texts import gettext as _
from serving_node.contract.datatypes import byte_size
from serving_node.contract.model_config import ModelConfig, parse_json, to_json
from serving_node.contract.signature import ModelSignature

DEFAULT_BATCHES = (1, 8, 32)
DEFAULT_SECONDS = 2.0
MAX_CELLS = 24
MAX_BATCH = 4096
MAX_INSTANCES = 16
MAX_SECONDS = 10.0
MAX_REQUEST_BYTES = 32 * 1024**2
# Enough that an instance that has answered finds the next request waiting, few enough to say little about queues.
REQUESTS_PER_INSTANCE = 2

# What every element type takes, and what small networks with tables of 2 entries take too.
_FLOAT_PATTERN = tuple(step / 8 for step in range(8))
_PACK = {"FP16": "e", "FP32": "f", "FP64": "d"}
_BYTES_ELEMENT = struct.pack("<I", 4) + b"text"


@dataclass(frozen=True, slots=True)
class Grid:
    """What to measure: every instance count with every batch size, ``seconds`` each.

    ``shapes`` gives the sizes after the batch dimension of inputs whose own are dynamic, by input name.
    """

    batch: tuple[int, ...]
    instances: tuple[int, ...] = (1,)
    seconds: float = DEFAULT_SECONDS
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Grid:
        """Build a grid from what ``to_json`` made."""
        shapes = {name: tuple(shape) for name, shape in document.get("shapes", {}).items()}
        return cls(tuple(document["batch"]), tuple(document["instances"]), float(document["seconds"]), shapes)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "batch": list(self.batch),
            "instances": list(self.instances),
            "seconds": self.seconds,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }

    @property
    def cells(self) -> int:
        """The number of combinations."""
        return len(self.batch) * len(self.instances)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. Milliseconds; rates per second; ``error`` says why it was not measured, else it is empty.

    ``latency_*`` is what the caller waited with ``in_flight`` requests under way, ``compute_ms`` and ``queue_ms`` are
    the node's own means of one request. ``load_seconds`` and ``memory_bytes`` are what the node said after loading.
    """

    batch: int
    instances: int
    in_flight: int
    load_seconds: float = 0.0
    memory_bytes: int = 0
    requests: int = 0
    failures: int = 0
    requests_per_second: float = 0.0
    rows_per_second: float = 0.0
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    compute_ms: float = 0.0
    queue_ms: float = 0.0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answers:
    """What came back in one run: seconds it took, latencies in seconds, the node's mean times, and the last refusal."""

    seconds: float
    latencies: tuple[float, ...]
    compute_seconds: float = 0.0
    queue_seconds: float = 0.0
    failures: int = 0
    refusal: str = ""


def default_batches(config: ModelConfig) -> tuple[int, ...]:
    """Return a few batch sizes up to the config's largest."""
    most = config.max_batch_size
    return tuple(sorted({size for size in (*DEFAULT_BATCHES, most) if 1 <= size <= max(most, 1)}))


def grid_problems(grid: Grid, config: ModelConfig, signature: ModelSignature) -> list[dict[str, str]]:
    """Return what stands against measuring this grid under this config, as errors of fields."""
    problems: list[tuple[str, str]] = []
    most = config.max_batch_size
    if not grid.batch or not all(1 <= size <= MAX_BATCH for size in grid.batch):
        problems.append(("batch", _("Batch sizes are whole numbers from 1 to %(most)d.") % {"most": MAX_BATCH}))
    elif max(grid.batch) > max(most, 1):
        text = _("Batch size %(size)d is above the config's max_batch_size of %(most)d; raise that first.")
        if not most:
            text = _("The config does not batch (max_batch_size 0), so that only batch size 1 can be measured.")
        problems.append(("batch", text % {"size": max(grid.batch), "most": most}))
    if not grid.instances or not all(1 <= count <= MAX_INSTANCES for count in grid.instances):
        text = _("Instance counts are whole numbers from 1 to %(most)d.") % {"most": MAX_INSTANCES}
        problems.append(("instances", text))
    if grid.cells > MAX_CELLS:
        text = _("This makes %(count)d combinations; at most %(most)d are measured at once.")
        problems.append(("batch", text % {"count": grid.cells, "most": MAX_CELLS}))
    if not 0.1 <= grid.seconds <= MAX_SECONDS:
        problems.append(("seconds", _("Each combination takes 0.1 to %(most)g seconds.") % {"most": MAX_SECONDS}))
    problems += [("config", text) for text in _unmeasurable(config)]
    problems += [("shapes", text) for text in _shape_problems(grid, config, signature)]
    if not problems and request_bytes(signature, config, max(grid.batch), grid.shapes) > MAX_REQUEST_BYTES:
        text = _("One request of batch size %(size)d would be larger than 32 MiB.") % {"size": max(grid.batch)}
        problems.append(("batch", text))
    return [{"field": name, "message": text} for name, text in problems]


def scratch_config(body: Mapping[str, Any], name: str, instances: int) -> dict[str, Any]:
    """Return the config of a copy: ``instances`` of each group, and nothing that merges or skips requests.

    Without dynamic batching and cache each request is one execution, so that a batch size means what it says.
    """
    config = parse_json(dict(body))
    config.name = name
    config.ClearField("scheduling_choice")
    config.ClearField("response_cache")
    if not config.instance_group:
        config.instance_group.add()
    for group in config.instance_group:
        group.count = instances
    return to_json(config, defaults=False)


def input_shapes(
    signature: ModelSignature, config: ModelConfig, batch: int, shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input of one request; a dynamic size without one in ``shapes`` is 1."""
    found = {}
    for tensor in signature.inputs:
        own = tensor.shape[1:] if config.max_batch_size else tensor.shape
        sizes = tuple(shapes.get(tensor.name, tuple(max(size, 1) if size >= 0 else 1 for size in own)))
        found[tensor.name] = (batch, *sizes) if config.max_batch_size else sizes
    return found


def request_bytes(
    signature: ModelSignature, config: ModelConfig, batch: int, shapes: Mapping[str, Sequence[int]]
) -> int:
    """Return the bytes of the inputs of one request."""
    sizes = input_shapes(signature, config, batch, shapes)
    return sum(
        math.prod(sizes[tensor.name]) * (byte_size(tensor.datatype) or len(_BYTES_ELEMENT))
        for tensor in signature.inputs
    )


def element_bytes(datatype: str, count: int) -> bytes:
    """Return ``count`` made-up elements as on the wire: eighths for floats, 0 and 1 for whole numbers, short texts."""
    if datatype == "BYTES":
        return _BYTES_ELEMENT * count
    size = byte_size(datatype) or 0
    if datatype in _PACK:
        pattern = struct.pack(f"<8{_PACK[datatype]}", *_FLOAT_PATTERN)
    elif datatype == "BF16":
        # the upper half of a single-precision number
        pattern = b"".join(struct.pack("<f", value)[2:] for value in _FLOAT_PATTERN)
    else:
        pattern = bytes(size) + b"\x01" + bytes(size - 1)
    return (pattern * (count * size // len(pattern) + 1))[: count * size]


def cell_of(cell: Cell, answers: Answers) -> Cell:
    """Return the cell with what was measured; without any answer it only says why."""
    done = len(answers.latencies)
    if not done:
        text = answers.refusal or _("No request was answered in %(seconds).1f s.") % {"seconds": answers.seconds}
        return Cell(**{**cell.to_json(), "failures": answers.failures, "error": text})
    ordered = sorted(answers.latencies)
    rate = done / answers.seconds
    measured = {
        "requests": done,
        "failures": answers.failures,
        "requests_per_second": round(rate, 2),
        "rows_per_second": round(rate * cell.batch, 2),
        "latency_p50_ms": _milliseconds(quantile(ordered, 0.5)),
        "latency_p99_ms": _milliseconds(quantile(ordered, 0.99)),
        "compute_ms": _milliseconds(answers.compute_seconds),
        "queue_ms": _milliseconds(answers.queue_seconds),
        "error": answers.refusal,
    }
    return Cell(**{**cell.to_json(), **measured})


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of some ordered numbers that at least ``share`` of them do not exceed."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _unmeasurable(config: ModelConfig) -> list[str]:
    if config.HasField("ensemble_scheduling"):
        return [_("An ensemble has no instances of its own; measure the models that it calls.")]
    if config.HasField("sequence_batching"):
        return [_("A model of sequences keeps state between requests; it is not measured here.")]
    if config.model_transaction_policy.decoupled:
        return [_("A decoupled model sends any number of answers to a request; it is not measured here.")]
    return []


def _shape_problems(grid: Grid, config: ModelConfig, signature: ModelSignature) -> list[str]:
    problems = []
    known = {tensor.name: tensor.shape[1:] if config.max_batch_size else tensor.shape for tensor in signature.inputs}
    for name, given in grid.shapes.items():
        own = known.get(name)
        if own is None:
            problems.append(_("The model has no input “%(name)s”.") % {"name": name})
        elif len(own) != len(given) or any(
            size < 1 or wanted not in (-1, size) for size, wanted in zip(given, own, strict=True)
        ):
            words = {"name": name, "shape": ", ".join(map(str, own)) or "()"}
            problems.append(_("The sizes of input “%(name)s” do not fit its shape [%(shape)s].") % words)
    return problems
