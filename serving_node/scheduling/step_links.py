"""How the steps of an ensemble are joined to the models that they name. Pure.

Tensors pass from step to step as they are; only names change, and the shape where one side batches and the other does
not. Source: Triton's ensemble scheduler (core, ensemble_scheduler.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.errors import InferenceError
from serving_node.core.request import Parameter
from serving_node.core.tensor import Tensor
from serving_node.scheduling.ensemble_graph import EnsembleGraph, Step


@dataclass(frozen=True, slots=True)
class Place:
    """Which sequence a step request belongs to, and whether it begins or ends it."""

    sequence_id: int | str = 0
    start: bool = False
    end: bool = False

    def parameters(self) -> dict[str, Parameter]:
        """Return what a response of an ensemble says of it."""
        return {"sequence_id": self.sequence_id, "sequence_start": self.start, "sequence_end": self.end}


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor on its way through an ensemble, or None for an output that a step was asked for and did not give.

    ``rows``: the batch size of the request that it came with, 0 from a model without batches. ``place``: the sequence
    that the steps behind it belong to.
    """

    tensor: Tensor | None
    rows: int
    place: Place


@dataclass(frozen=True, slots=True)
class Side:
    """One end of a link: what a model, or the ensemble itself, takes or gives. ``dims`` are without rows."""

    has_rows: bool
    dims: Mapping[str, tuple[int, ...]]

    def fit(self, name: str, tensor: Tensor, rows: int) -> Tensor:
        """Return a tensor under a name of this side, with the shape that it expects. ``rows`` as of ``Piece``."""
        shape = tensor.shape
        if self.has_rows != (rows > 0):
            fits = _alike(self.dims[name], shape)
            if self.has_rows and fits:
                shape = (1, *shape)
            elif not self.has_rows and not fits and rows == 1:
                shape = shape[1:]
        return Tensor(name, tensor.datatype, shape, tensor.data)


@dataclass(frozen=True, slots=True)
class StepLink:
    """A step and its model. ``model`` and ``version`` are as requests name them; no version is the latest.

    ``side`` are its inputs. ``outputs``: of the model's outputs those that the ensemble maps.
    """

    model: str
    version: str
    side: Side
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All that a request of an ensemble needs to know. ``side`` are its outputs as clients see them.

    ``outputs`` are their names in the order of answers: the last one of the config first, as Triton answers.
    """

    name: str
    graph: EnsembleGraph
    links: tuple[StepLink, ...]
    side: Side
    outputs: tuple[str, ...]


def pipeline(config: ModelConfig, models: Sequence[ModelConfig]) -> Pipeline:
    """Return what an ensemble does, from its config and those of the models of its steps; they fit."""
    steps, links = [], []
    for step, model in zip(config.ensemble_scheduling.step, models, strict=True):
        name = step_model(step.model_name, step.model_namespace)
        # maps have no order of their own
        inputs, outputs = dict(sorted(step.input_map.items())), dict(sorted(step.output_map.items()))
        is_decoupled = model.model_transaction_policy.decoupled
        steps.append(Step(name, inputs, outputs, step.model_version, is_decoupled=is_decoupled))
        side = Side(model.max_batch_size > 0, {tensor.name: tuple(tensor.dims) for tensor in model.input})
        version = str(step.model_version) if step.model_version >= 0 else ""
        links.append(StepLink(name, version, side, tuple(outputs)))
    outputs_seen = {tensor.name: tuple(tensor.dims) for tensor in config.output}
    graph = EnsembleGraph([tensor.name for tensor in config.input], outputs_seen, steps)
    return Pipeline(
        config.name, graph, tuple(links), Side(config.max_batch_size > 0, outputs_seen), tuple(outputs_seen)[::-1]
    )


def step_model(name: str, namespace: str) -> str:
    """Return how the node calls the model of a step: its repository, where names may stand in several, and its name."""
    return f"{namespace}::{name}" if namespace else name


def place_of(parameters: Mapping[str, Parameter]) -> Place | None:
    """Return where a step's response puts the steps behind it, None when it does not say.

    Raises:
        InferenceError: INVALID_ARG, a parameter has the wrong type.
    """
    if not parameters.keys() & {"sequence_id", "sequence_start", "sequence_end"}:
        return None
    identity = parameters.get("sequence_id", 0)
    if isinstance(identity, bool) or not isinstance(identity, int | str):
        text = (
            "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING, got "
            f"{_kind(identity)}"
        )
        raise InferenceError(ErrorCode.INVALID_ARG, text)
    return Place(identity, _flag(parameters, "sequence_start"), _flag(parameters, "sequence_end"))


def _flag(parameters: Mapping[str, Parameter], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"expected parameter '{name}' to be TRITONSERVER_PARAMETER_BOOL, got {_kind(value)}"
        )
    return value


def _kind(value: Parameter) -> str:
    kinds = {bool: "BOOL", int: "INT", float: "DOUBLE", str: "STRING"}
    return f"TRITONSERVER_PARAMETER_{kinds[type(value)]}"


def _alike(dims: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(dims) == len(shape) and all(
        expected in (-1, actual) for expected, actual in zip(dims, shape, strict=True)
    )
