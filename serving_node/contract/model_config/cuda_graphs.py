"""Which CUDA graphs a config asks for, with Triton's sizes and sentences. TensorRT only.

Source: ``optimization.cuda.graph_spec`` of Triton's ModelConfig and its TensorRT backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from serving_node.contract.errors import ContractError
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelOptimizationPolicy

# small batches gain most; Triton's sizes for models without preferred ones
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """One graph to record. ``rows`` 0: the model has no batches. Shapes are without rows; none: the profile's best.

    ``lower``: the graph also serves batches down to these rows and shapes.
    """

    rows: int
    shapes: Mapping[str, Shape]
    lower_rows: int
    lower_shapes: Mapping[str, Shape]


def graph_specs(config: ModelConfig) -> tuple[GraphSpec, ...]:
    """Return what to record; nothing unless ``optimization.cuda.graphs`` is set."""
    cuda = config.optimization.cuda
    if not cuda.graphs:
        return ()
    if not cuda.graph_spec:
        return tuple(GraphSpec(rows, {}, rows, {}) for rows in _default_rows(config))
    return tuple(_spec(given) for given in cuda.graph_spec)


def cuda_graph_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield what is wrong with the graphs that a config asks for."""
    if not config.optimization.cuda.graphs:
        return
    for index, given in enumerate(config.optimization.cuda.graph_spec):
        sentence = _problem(_spec(given), config.max_batch_size)
        if sentence:
            yield ContractError(sentence, field=f"optimization.cuda.graph_spec[{index}]")


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


def _problem(spec: GraphSpec, max_batch_size: int) -> str:
    """Return what is wrong with a specification, empty when nothing is."""
    if max_batch_size == 0:
        if spec.rows or spec.lower_rows:
            return "graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0"
    elif not (1 <= spec.rows <= max_batch_size and 1 <= spec.lower_rows <= max_batch_size):
        return f"graph spec expects 'batch_size' to be >= 1 and <= {max_batch_size}"
    if spec.lower_rows > spec.rows:
        return "graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'"
    for name, shape in spec.shapes.items():
        lower = spec.lower_shapes.get(name)
        if lower is None:
            return f"graph lower bound spec expects shape for input '{name}'"
        if len(lower) != len(shape):
            return f"graph lower bound spec expects to have '{len(shape)} dimensions, got {len(lower)}"
        for low, high in zip(lower, shape, strict=True):
            if low < 0 or high < 0:
                return f"graph spec expects input '{name}' to have dimension >= 0"
            if low > high:
                return f"graph lower bound spec expects input '{name}' to have dimension <= {high}"
    return ""
