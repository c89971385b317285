from __future__ import annotations

from collections.abc import Sequence

import pytest

from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from serving_node.scheduling.marks import TraceMarks


class Notes:
    """A trace that remembers."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, model: str, version: str, request_id: str, ns: int) -> None:
        raise AssertionError("the dataplane begins")

    def mark(self, activity: str, ns: int) -> None:
        self.seen.append(f"{activity} {ns}")

    def tensors(self, activity: str, tensors: Sequence[Tensor]) -> None:
        self.seen.append(activity)

    def context(self) -> str:
        return ""

    def end(self, ns: int) -> None:
        self.seen.append("end")

    def finish(self) -> None:
        raise AssertionError("the frontend finishes")


COMPUTED = ["COMPUTE_START 3", "COMPUTE_INPUT_END 4", "COMPUTE_OUTPUT_START 8", "COMPUTE_END 9"]


def traced() -> tuple[InferenceRequest, Notes, Execution]:
    notes = Notes()
    request = InferenceRequest("m", "", [], lambda response: None, trace=notes, queued_ns=2)
    execution = Execution([request], 1, [None], started_ns=3, inputs_ready_ns=4, computed_ns=8, finished_ns=9)
    return request, notes, execution


def test_request_that_is_answered_with_its_batch_is_ended_by_the_scheduler() -> None:
    request, notes, execution = traced()
    marks = TraceMarks()
    marks.queued(request)
    marks.computed(request, execution, [Tensor("y", "FP32", (0,), b"")])
    assert notes.seen == ["QUEUE_START 2", "TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT", *COMPUTED]


@pytest.mark.parametrize("answered_first", [True, False])
def test_request_apart_from_its_batch_ends_with_the_later_of_both(answered_first: bool) -> None:
    request, notes, execution = traced()
    marks = TraceMarks()
    if answered_first:
        marks.answered_apart(request)
        assert notes.seen == []
        marks.computed(request, execution, None)
    else:
        marks.computed(request, execution, None)
        assert notes.seen == COMPUTED
        marks.answered_apart(request)
    assert notes.seen == [*COMPUTED, "end"]
    assert not marks._answered
    assert not marks._computed
