"""A batch that runs, and what became of it."""

from __future__ import annotations

from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, Parameter
from serving_node.core.tensor import Tensor


class Execution:
    """One batch on its way through an instance.

    Ownership: the instance fills ``results`` with one entry for each request, in order: its tensors, its error, or
    None when its responses come apart from the batch (``LoopInstance`` only). ``parameters`` holds the response
    parameters of those requests, by their place in the batch, that have some; ``again`` the places of those that an
    iterative model wants to run once more, whose result is None.
    Shapes: input tensors are (rows of the request, *dims); ``rows`` is the sum over requests, 1 each without batching.
    Units: monotonic nanoseconds. The instance sets ``inputs_ready_ns`` and ``computed_ns``; the scheduler the others.
    """

    __slots__ = (
        "again",
        "computed_ns",
        "finished_ns",
        "inputs_ready_ns",
        "parameters",
        "requests",
        "results",
        "rows",
        "started_ns",
    )

    # written out, not made by ``dataclass``: see core.request
    def __init__(
        self,
        requests: list[InferenceRequest],
        rows: int,
        results: list[list[Tensor] | InferenceError | None] | None = None,
        started_ns: int = 0,
        inputs_ready_ns: int = 0,
        computed_ns: int = 0,
        finished_ns: int = 0,
    ) -> None:
        self.requests = requests
        self.rows = rows
        self.results: list[list[Tensor] | InferenceError | None] = [] if results is None else results
        self.parameters: dict[int, dict[str, Parameter]] | None = None
        self.started_ns = started_ns
        self.inputs_ready_ns = inputs_ready_ns
        self.computed_ns = computed_ns
        self.finished_ns = finished_ns
        self.again: list[int] | None = None
