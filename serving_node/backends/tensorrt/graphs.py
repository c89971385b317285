"""Which CUDA graphs are recorded, and which one a batch can replay. Pure, with Triton's sentences.

Source: ``optimization.cuda.graph_spec`` of Triton's ModelConfig and its TensorRT backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from serving_node.backends.tensorrt.facts import EngineFacts, Profile, Shape
from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelOptimizationPolicy
from serving_node.core.errors import InferenceError

# small batches gain most; Triton's sizes for models without preferred ones
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """One graph to record. ``rows`` 0: the model has no batches. Shapes are without rows; none: the profile's best.

    ``lower``: the graph also serves batches down to these rows and shapes.
    """

    rows: int
    shapes: Mapping[str, Shape]
    lower_rows: int
    lower_shapes: Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One graph of one profile: full shapes of all inputs, and the smallest ones that it serves."""

    shapes: Mapping[str, Shape]
    lower: Mapping[str, Shape]


def graph_specs(config: ModelConfig) -> tuple[GraphSpec, ...]:
    """Return what to record; nothing unless ``optimization.cuda.graphs`` is set.

    Raises:
        InferenceError: INVALID_ARG, a specification makes no sense.
    """
    cuda = config.optimization.cuda
    if not cuda.graphs:
        return ()
    if not cuda.graph_spec:
        return tuple(GraphSpec(rows, {}, rows, {}) for rows in _default_rows(config))
    specs = tuple(_spec(given) for given in cuda.graph_spec)
    for spec in specs:
        _check(spec, config.max_batch_size)
    return specs


def _default_rows(config: ModelConfig) -> list[int]:
    most: int = config.max_batch_size
    if most == 0:
        return [0]
    if config.HasField("dynamic_batching"):
        rows = {1, *config.dynamic_batching.preferred_batch_size}
    elif config.sequence_batching.HasField("oldest"):
        rows = {1, *config.sequence_batching.oldest.preferred_batch_size}
    else:
        rows = set(_SIZES)
    return sorted(size for size in {*rows, most} if 0 < size <= most)


def _spec(given: ModelOptimizationPolicy.Cuda.GraphSpec) -> GraphSpec:
    shapes = {name: tuple(shape.dim) for name, shape in given.input.items()}
    if not given.HasField("graph_lower_bound"):
        return GraphSpec(given.batch_size, shapes, given.batch_size, shapes)
    bound = given.graph_lower_bound
    lower = {name: tuple(shape.dim) for name, shape in bound.input.items()}
    return GraphSpec(given.batch_size, shapes, bound.batch_size, lower)


def _check(spec: GraphSpec, max_batch_size: int) -> None:
    if max_batch_size == 0:
        if spec.rows or spec.lower_rows:
            raise _bad("graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0")
    elif not (1 <= spec.rows <= max_batch_size and 1 <= spec.lower_rows <= max_batch_size):
        raise _bad(f"graph spec expects 'batch_size' to be >= 1 and <= {max_batch_size}")
    if spec.lower_rows > spec.rows:
        raise _bad("graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'")
    for name, shape in spec.shapes.items():
        lower = spec.lower_shapes.get(name)
        if lower is None:
            raise _bad(f"graph lower bound spec expects shape for input '{name}'")
        if len(lower) != len(shape):
            raise _bad(f"graph lower bound spec expects to have '{len(shape)} dimensions, got {len(lower)}")
        for low, high in zip(lower, shape, strict=True):
            if low < 0 or high < 0:
                raise _bad(f"graph spec expects input '{name}' to have dimension >= 0")
            if low > high:
                raise _bad(f"graph lower bound spec expects input '{name}' to have dimension <= {high}")


def plan(spec: GraphSpec, facts: EngineFacts, profile: Profile) -> GraphPlan | None:
    """Return the shapes to record in a profile, None when the profile does not allow them.

    Engines with shape tensors have no graphs: what is recorded would depend on their elements.

    Raises:
        InferenceError: INVALID_ARG, the specification leaves out an input.
    """
    if facts.has_shape_tensors:
        return None
    shapes: dict[str, Shape] = {}
    lower: dict[str, Shape] = {}
    for tensor in facts.inputs:
        bounds = profile.shapes[tensor.name]
        if not spec.shapes:
            best = bounds.best
            shapes[tensor.name] = (spec.rows, *best[1:]) if spec.rows else best
            lower[tensor.name] = shapes[tensor.name]
        elif tensor.name not in spec.shapes:
            raise _bad(f"trt failed to set input shape for unknown input '{tensor.name}'")
        else:
            # inputs that are joined flat, and those that describe a batch, are specified as the engine sees them
            front = len(spec.shapes[tensor.name]) < len(bounds.most) and spec.rows > 0
            shapes[tensor.name] = (*((spec.rows,) if front else ()), *spec.shapes[tensor.name])
            lower[tensor.name] = (*((spec.lower_rows,) if front else ()), *spec.lower_shapes[tensor.name])
        most, least = bounds.most, bounds.least
        shape = shapes[tensor.name]
        if len(shape) != len(most) or not all(
            low <= dim <= high for low, dim, high in zip(least, shape, most, strict=True)
        ):
            return None
    return GraphPlan(shapes, lower)


class Recorded(Generic[T]):
    """The graphs of one profile, by the shapes of inputs. A batch gets the exact one, else the smallest that holds it.

    ``T`` is what replays a graph.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._exact: dict[tuple[Shape, ...], tuple[GraphPlan, T]] = {}
        self._wider: list[tuple[GraphPlan, T]] = []

    def add(self, plan: GraphPlan, graph: T) -> None:
        """Remember a graph; one of the same shapes is kept."""
        key = self._key(plan.shapes)
        if key in self._exact:
            return
        self._exact[key] = plan, graph
        if plan.lower != plan.shapes:
            self._wider.append((plan, graph))
            self._wider.sort(key=lambda pair: self._key(pair[0].shapes))

    def has(self, plan: GraphPlan) -> bool:
        """Tell whether a graph of these shapes is there."""
        return self._key(plan.shapes) in self._exact

    def find(self, shapes: Mapping[str, Shape]) -> tuple[GraphPlan, T] | None:
        """Return the graph for a batch, None when none is recorded for it."""
        if not self._exact:
            return None
        found = self._exact.get(self._key(shapes))
        if found is not None:
            return found
        return next((pair for pair in self._wider if self._holds(pair[0], shapes)), None)

    def graphs(self) -> list[T]:
        """Return all graphs."""
        return [graph for _, graph in self._exact.values()]

    def clear(self) -> None:
        """Forget all graphs."""
        self._exact.clear()
        self._wider.clear()

    def _key(self, shapes: Mapping[str, Shape]) -> tuple[Shape, ...]:
        return tuple([shapes[name] for name in self._names])

    def _holds(self, plan: GraphPlan, shapes: Mapping[str, Shape]) -> bool:
        return all(
            len(shapes[name]) == len(plan.shapes[name])
            and all(
                low <= dim <= high
                for low, dim, high in zip(plan.lower[name], shapes[name], plan.shapes[name], strict=True)
            )
            for name in self._names
        )


def _bad(sentence: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, sentence)
