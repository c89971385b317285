"""Who waits for ever: against a step-by-step run of the same waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving_node.backends.python.waiting import WaitingWorkers, never_ends
from serving_node.core.request import InferenceRequest

NODES = st.integers(0, 5)
WAITS = st.dictionaries(NODES, st.lists(st.frozensets(NODES, max_size=3), min_size=1, max_size=3), max_size=6)


@given(WAITS, NODES)
def test_a_node_waits_for_ever_when_no_order_of_ends_frees_it(
    waits: dict[int, list[frozenset[int]]], node: int
) -> None:
    ended = {one for one in range(6) if one not in waits}
    for _ in range(6):  # each round ends at least one more, if any can end
        ended |= {one for one, wanted in waits.items() if all(not able or able & ended for able in wanted)}
    assert never_ends(node, waits) == (node not in ended)


class Worker:
    """A worker that has some requests and waits for others."""

    def __init__(self) -> None:
        self.has: list[InferenceRequest] = []
        self.waits: list[InferenceRequest] = []

    def waits_for(self) -> list[InferenceRequest]:
        return self.waits

    def runs(self, request: InferenceRequest) -> bool:
        return any(one is request for one in self.has)


def _request(model: str, version: str = "") -> InferenceRequest:
    return InferenceRequest(model, version, [], lambda _: None)


def test_workers_of_other_versions_and_idle_ones_can_take_a_request() -> None:
    waiting = WaitingWorkers()
    first, second = Worker(), Worker()
    waiting.add("m", 1, first)
    remove = waiting.add("m", 2, second)
    any_version, own_version = _request("m"), _request("m", "1")
    first.waits = [any_version]
    assert not waiting.would_never_end(first, any_version)
    first.waits = [own_version]
    assert waiting.would_never_end(first, own_version)
    first.waits = [any_version]
    remove()
    assert waiting.would_never_end(first, any_version)


def test_two_that_wait_for_each_other_are_found_however_far_the_requests_are() -> None:
    waiting = WaitingWorkers()
    a, b, other = Worker(), Worker(), Worker()
    for name, worker in (("a", a), ("b", b), ("other", other)):
        waiting.add(name, 1, worker)
    to_b, to_a = _request("b"), _request("a")
    a.waits, b.has = [to_b], [to_b]
    assert not waiting.would_never_end(a, to_b)
    b.waits = [to_a]
    assert waiting.would_never_end(b, to_a)
    assert not waiting.would_never_end(other, _request("c"))


def test_who_waits_for_a_model_of_another_backend_ends() -> None:
    waiting = WaitingWorkers()
    a, b = Worker(), Worker()
    waiting.add("a", 1, a)
    waiting.add("b", 1, b)
    a.waits, b.waits = [_request("b")], [_request("onnx")]
    assert not waiting.would_never_end(a, a.waits[0])
