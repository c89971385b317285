from __future__ import annotations

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy, TimeoutAction
from serving_node.scheduling.queue import LevelQueue, PriorityQueue


def make(identity: int, *, priority: int = 0, timeout_us: int = 0) -> InferenceRequest:
    return InferenceRequest("m", "", [], lambda response: None, str(identity), priority=priority, timeout_us=timeout_us)


def ids(requests: list[InferenceRequest]) -> list[str]:
    return [request.id for request in requests]


def test_push_when_level_is_full_refuses_with_triton_text() -> None:
    queue = LevelQueue(QueuePolicy(max_queue_size=1))
    queue.push(make(1), 0)

    with pytest.raises(InferenceError) as caught:
        queue.push(make(2), 0)

    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.message == "[request id: 2] Exceeds maximum queue size"


def test_queue_size_counts_only_live_requests() -> None:
    queue = PriorityQueue(BatchPolicy(4, levels=(QueuePolicy(max_queue_size=1),)))
    first = make(1)
    queue.push(first, 0)
    assert queue.cancel(first)
    queue.push(make(2), 0)
    assert len(queue) == 1


def test_urgent_level_overtakes_and_unknown_priority_is_default() -> None:
    queue = PriorityQueue(BatchPolicy(4, default_level=2, levels=(QueuePolicy(), QueuePolicy(), QueuePolicy())))
    for identity, priority in ((1, 3), (2, 0), (3, 9), (4, 1)):
        queue.push(make(identity, priority=priority), 0)

    assert ids(queue.take(4)) == ["4", "2", "3", "1"]


def test_reject_fires_at_the_deadline_and_not_before() -> None:
    queue = PriorityQueue(BatchPolicy(4, levels=(QueuePolicy(default_timeout_ns=100),)))
    queue.push(make(1), 0)
    queue.push(make(2), 50)

    assert queue.next_rejection_ns() == 100
    assert queue.expire(99) == []
    assert ids(queue.expire(100)) == ["1"]
    assert queue.next_rejection_ns() == 150
    assert ids(queue.take(5)) == ["2"]
    assert queue.next_rejection_ns() is None


def test_delay_moves_behind_the_rest_of_its_level_only() -> None:
    level = QueuePolicy(timeout_action=TimeoutAction.DELAY, default_timeout_ns=100)
    queue = PriorityQueue(BatchPolicy(4, levels=(level, QueuePolicy())))
    queue.push(make(1, priority=1), 0)
    queue.push(make(2, priority=1), 90)
    queue.push(make(3, priority=2), 0)

    assert queue.expire(120) == []
    assert [request.id for request in queue.walk()] == ["2", "1", "3"]
    assert ids(queue.take(3)) == ["2", "1", "3"]


@pytest.mark.parametrize(
    ("default_ns", "requested_us", "allowed", "expected_ns"),
    [
        (5_000, 2, True, 2_000),
        (5_000, 9, True, 5_000),
        (5_000, 2, False, 5_000),
        (0, 2, True, 0),
        (5_000, 0, True, 5_000),
    ],
)
def test_request_can_only_shorten_a_timeout(
    default_ns: int, requested_us: int, allowed: bool, expected_ns: int
) -> None:
    policy = QueuePolicy(default_timeout_ns=default_ns, allow_timeout_override=allowed)
    assert policy.timeout_ns(requested_us) == expected_ns


def test_requests_that_left_do_not_pile_up() -> None:
    queue = LevelQueue(QueuePolicy(default_timeout_ns=10**12, allow_timeout_override=True))
    for identity in range(5_000):
        request = make(identity, timeout_us=identity % 3)
        queue.push(request, identity)
        if identity % 2:
            queue.cancel(request)
        else:
            queue.take(1, [])

    assert len(queue._ready) <= 200
    assert len(queue._usual) + len(queue._shortened) <= 200


def test_delayed_requests_that_left_do_not_pile_up_and_the_others_still_run() -> None:
    queue = LevelQueue(QueuePolicy(timeout_action=TimeoutAction.DELAY, default_timeout_ns=1))
    requests = [make(identity) for identity in range(500)]
    for request in requests:
        queue.push(request, 0)
    queue.expire(10, [])
    for request in requests[1:]:
        queue.cancel(request)
    assert len(queue._delayed) <= 200
    taken: list[InferenceRequest] = []
    assert queue.take(10, taken) == 1
    assert ids(taken) == ["0"]


def test_cancel_of_a_taken_request_says_so() -> None:
    queue = PriorityQueue(BatchPolicy(4))
    request = make(1)
    queue.push(request, 0)
    queue.take(1)
    assert not queue.cancel(request)


def test_a_caller_that_stops_waiting_leaves_the_queue_whatever_the_policy() -> None:
    queue = PriorityQueue(BatchPolicy(4))
    late, patient = make(1), make(2)
    late.deadline_ns, patient.deadline_ns = 50, 5_000
    queue.push(late, 10)
    queue.push(patient, 10)
    assert queue.expire(49) == []
    assert queue.expire(50) == [late]
    assert queue.take(5) == [patient]
    assert queue.expire(9_000) == []


def test_time_outs_end_in_order_whoever_shortened_his() -> None:
    level = QueuePolicy(default_timeout_ns=10_000, allow_timeout_override=True)
    queue = PriorityQueue(BatchPolicy(4, levels=(level,)))
    for identity, timeout_us in ((1, 0), (2, 3), (3, 1), (4, 0)):
        queue.push(make(identity, timeout_us=timeout_us), identity)

    assert queue.next_rejection_ns() == 1003
    assert ids(queue.expire(10_001)) == ["3", "2", "1"]
    assert queue.next_rejection_ns() == 10_004
    assert ids(queue.take(9)) == ["4"]
    assert queue.next_rejection_ns() is None
