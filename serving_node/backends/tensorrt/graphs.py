"""In which shapes CUDA graphs are recorded, and which one a batch can replay. Pure, with Triton's sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from serving_node.backends.tensorrt.facts import EngineFacts, Profile, Shape
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.cuda_graphs import GraphSpec
from serving_node.core.errors import InferenceError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One graph of one profile: full shapes of all inputs, and the smallest ones that it serves."""

    shapes: Mapping[str, Shape]
    lower: Mapping[str, Shape]


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
