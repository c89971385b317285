"""Sequences in slots: both strategies, against what they promise."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.policy import BatchPolicy
from serving_node.scheduling.sequence_batcher import SequenceBatcher
from serving_node.scheduling.sequence_policy import SequencePolicy
from serving_node.scheduling.sequence_slots import Sequence
from serving_node.scheduling.sequence_strategies import SequenceBatch

MS = 1_000_000
IDLE = 1000 * MS


def request(sequence: int | str, flags: str = "", *, timeout_us: int = 0, key: object = None) -> InferenceRequest:
    """``flags``: S for START, E for END."""
    return InferenceRequest(
        "m",
        "",
        [],
        lambda response: None,
        sequence_id=sequence,
        sequence_start="S" in flags,
        sequence_end="E" in flags,
        timeout_us=timeout_us,
        batch_key=key,
    )


def direct(slots: int = 2, instances: int = 1, **rules: float) -> SequenceBatcher:
    policy = SequencePolicy(
        slots=slots,
        max_idle_ns=IDLE,
        is_direct=True,
        rows=slots,
        delay_ns=int(rules.get("delay_ns", 0)),
        minimum_utilization=rules.get("minimum_utilization", 0.0),
    )
    return SequenceBatcher("m", policy, instances)


def oldest(slots: int = 2, instances: int = 1, size: int = 4) -> SequenceBatcher:
    batching = BatchPolicy(size, frozenset((size,))) if size else None
    policy = SequencePolicy(slots=slots, max_idle_ns=IDLE, is_direct=False, rows=max(size, 1), batching=batching)
    return SequenceBatcher("m", policy, instances)


def ids(batch: SequenceBatch) -> list[int | str | None]:
    return [row.request.sequence_id if row.request else None for row in batch.rows]


def run_one(batcher: SequenceBatcher, now_ns: int = 0) -> SequenceBatch:
    (batch,) = batcher.poll(now_ns, [0]).batches
    batcher.finished(batch, now_ns)
    return batch


@pytest.mark.parametrize("make", [direct, oldest])
def test_a_sequence_begins_with_start(make: type) -> None:
    batcher = make()
    with pytest.raises(InferenceError) as caught:
        batcher.push(request(7), 0)
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == (
        "inference request for sequence 7 to model 'm' must specify the START flag on the first request of the sequence"
    )


@pytest.mark.parametrize("unnamed", [0, ""])
def test_a_request_without_correlation_id_is_refused(unnamed: int | str) -> None:
    with pytest.raises(InferenceError, match="must specify a non-zero or non-empty correlation ID"):
        direct().push(request(unnamed, "S"), 0)


def test_a_request_of_two_rows_is_refused() -> None:
    large = request(1, "S")
    large.batch_size = 2
    with pytest.raises(InferenceError, match="must specify batch-size 1 due to requirements of sequence batcher"):
        direct().push(large, 0)


def test_direct_rows_keep_their_place_when_a_slot_has_nothing() -> None:
    batcher = direct(slots=3)
    for number in (1, 2, 3):
        batcher.push(request(number, "S"), 0)
    assert ids(run_one(batcher)) == [1, 2, 3]
    batcher.push(request(2), 0)
    assert ids(run_one(batcher)) == [None, 2]  # rows end with the last slot that has a request


def test_direct_sequences_of_another_shape_wait_for_the_next_batch() -> None:
    batcher = direct(slots=2)
    batcher.push(request(1, "S", key="A"), 0)
    batcher.push(request(2, "S", key="B"), 0)
    assert ids(run_one(batcher)) == [1, None]
    assert ids(run_one(batcher)) == [None, 2]


def test_slots_are_filled_across_instances_first() -> None:
    batcher = direct(slots=2, instances=2)
    for number in (1, 2, 3):
        batcher.push(request(number, "S"), 0)
    first, second = batcher.poll(0, [0, 1]).batches
    assert (ids(first), ids(second)) == ([1, 3], [2])


def test_the_end_frees_the_slot_for_the_backlog() -> None:
    batcher = direct(slots=1)
    batcher.push(request(1, "S"), 0)
    batcher.push(request(2, "SE"), 0)
    batcher.push(request(1, "E"), 0)
    assert batcher.backlog == 1
    assert [ids(run_one(batcher)) for _ in range(3)] == [[1], [1], [2]]
    assert batcher.backlog == batcher.pending == 0


def test_a_start_on_a_living_id_goes_on_in_its_slot() -> None:
    batcher = direct(slots=2)
    batcher.push(request(1, "S"), 0)
    batcher.push(request(1, "S"), 0)
    assert batcher.conflicts == 1
    assert [ids(run_one(batcher)) for _ in range(2)] == [[1], [1]]


def test_an_idle_sequence_loses_its_slot_and_must_start_again() -> None:
    batcher = direct(slots=1)
    batcher.push(request(1, "S"), 0)
    run_one(batcher)
    batcher.push(request(2, "S"), IDLE - 1)
    poll = batcher.poll(IDLE - 1, [0])
    assert poll.batches == []
    assert poll.wake_at_ns == IDLE
    (batch,) = batcher.poll(IDLE, [0]).batches
    assert ids(batch) == [2]
    with pytest.raises(InferenceError, match="START flag"):
        batcher.push(request(1), IDLE)


def test_what_an_idle_sequence_has_queued_still_runs() -> None:
    batcher = direct(slots=1)
    batcher.push(request(1, "S"), 0)
    batcher.push(request(2, "S"), 1)
    batcher.poll(IDLE + 1, [])
    assert [ids(run_one(batcher, IDLE + 1)) for _ in range(2)] == [[1], [2]]


def test_a_sequence_that_waits_for_a_slot_is_not_idle() -> None:
    batcher = direct(slots=1)
    batcher.push(request(1, "S"), 0)
    batcher.push(request(2, "S"), 0)
    run_one(batcher)
    for now_ns in range(0, 3 * IDLE, IDLE // 2):
        batcher.push(request(1), now_ns)
        run_one(batcher, now_ns)
    batcher.push(request(2), 3 * IDLE)  # no error: it is still known
    assert batcher.backlog == 1


def test_a_sequence_gives_up_waiting_for_a_slot_when_its_time_is_over() -> None:
    batcher = direct(slots=1)
    batcher.push(request(1, "S"), 0)
    run_one(batcher)
    first, second = request(2, "S", timeout_us=5000), request(2, timeout_us=1000)
    batcher.push(first, 0)
    batcher.push(second, 0)
    assert batcher.poll(0, [0]).wake_at_ns == MS
    failed = batcher.poll(MS, [0]).failed
    assert [one for one, _ in failed] == [first, second]
    assert {(error.code, error.message) for _, error in failed} == {
        (ErrorCode.UNAVAILABLE, "timeout of the corresponding sequence has been expired")
    }
    with pytest.raises(InferenceError, match="START flag"):
        batcher.push(request(2), MS)
    assert batcher.pending == 0


def test_direct_waits_for_enough_rows_or_the_delay() -> None:
    batcher = direct(slots=4, delay_ns=10 * MS, minimum_utilization=0.5)
    batcher.push(request(1, "S"), 0)
    poll = batcher.poll(MS, [0])
    assert (poll.batches, poll.wake_at_ns) == ([], 10 * MS)
    assert ids(batcher.poll(10 * MS, [0]).batches[0]) == [1]
    batcher.push(request(1), 11 * MS)
    batcher.push(request(2, "S"), 11 * MS)
    assert ids(batcher.poll(11 * MS, [0]).batches[0]) == [1, 2]


def test_oldest_runs_one_request_of_a_sequence_at_a_time() -> None:
    batcher = oldest(slots=4)
    for flags in ("S", "", "E"):
        batcher.push(request(1, flags), 0)
    batcher.push(request(2, "S"), 0)
    (batch,) = batcher.poll(0, [0]).batches
    assert ids(batch) == [1, 2]
    assert batcher.poll(0, [0]).batches == []
    batcher.finished(batch, 0)
    assert ids(run_one(batcher)) == [1]
    assert ids(run_one(batcher)) == [1]


def test_oldest_without_batching_runs_each_alone() -> None:
    batcher = oldest(slots=2, size=0)
    batcher.push(request(1, "S"), 0)
    batcher.push(request(2, "S"), 0)
    assert [ids(run_one(batcher)) for _ in range(2)] == [[1], [2]]


def test_cancelling_one_request_ends_its_sequence_from_there_on() -> None:
    batcher = direct(slots=1)
    requests = [request(1, flags) for flags in ("S", "", "", "E")]
    for one in requests:
        batcher.push(one, 0)
    other = request(2, "S")
    batcher.push(other, 0)
    assert batcher.cancel(requests[1], 0) == requests[1:]
    assert [ids(run_one(batcher)) for _ in range(2)] == [[1], [2]]
    assert batcher.cancel(requests[0], 0) == []


def test_cancelling_what_was_handed_on_frees_the_slot() -> None:
    batcher = oldest(slots=1)
    first, second = request(1, "S"), request(1)
    batcher.push(first, 0)
    batcher.push(second, 0)
    batcher.push(request(2, "S"), 0)
    assert batcher.cancel(first, 0) == [first, second]
    assert ids(run_one(batcher)) == [2]


def test_everything_that_waits_can_be_taken_out() -> None:
    for batcher in (direct(slots=1), oldest(slots=1)):
        waiting = [request(1, "S"), request(1), request(2, "S")]
        for one in waiting:
            batcher.push(one, 0)
        assert {id(one) for one in batcher.take_all()} == {id(one) for one in waiting}
        assert batcher.pending == 0


def iterative(*, is_direct: bool, slots: int = 2, instances: int = 1) -> SequenceBatcher:
    policy = SequencePolicy(
        slots=slots,
        max_idle_ns=IDLE,
        is_direct=is_direct,
        rows=slots,
        batching=None if is_direct else BatchPolicy(4, frozenset((4,))),
        is_iterative=True,
    )
    return SequenceBatcher("m", policy, instances)


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_request_without_id_is_a_sequence_of_its_own_where_the_model_is_iterative(is_direct: bool) -> None:
    batcher = iterative(is_direct=is_direct, slots=1)
    first, second = request(0), request(0)
    batcher.push(first, 0)
    batcher.push(second, 0)
    assert (first.sequence_id, second.sequence_id, first.sequence_start) == (1, 2, True)
    (batch,) = batcher.poll(0, [0]).batches
    assert ids(batch) == [1]
    assert batcher.finished(batch, 0, [first]) == []
    assert not first.sequence_start
    assert ids(run_one(batcher)) == [1]
    assert ids(run_one(batcher)) == [2]
    assert not batcher.seated
    assert batcher.poll(0, [0]).batches == []


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_long_pass_is_not_idle(is_direct: bool) -> None:
    batcher = iterative(is_direct=is_direct, slots=1)
    one = request(0)
    batcher.push(one, 0)
    (batch,) = batcher.poll(0, [0]).batches
    assert batcher.poll(10 * IDLE, []).failed == []
    assert batcher.finished(batch, 10 * IDLE, [one]) == []
    assert ids(run_one(batcher, 10 * IDLE)) == [1]


@pytest.mark.parametrize("make", [direct, oldest])
def test_what_waits_for_an_instance_that_is_gone_is_returned_and_others_take_over(make: type) -> None:
    batcher = make(slots=1, instances=2)
    requests = [request(1, "S"), request(1), request(2, "S"), request(3, "S")]
    for one in requests:
        batcher.push(one, 0)
    assert batcher.abandon(0) == requests[:2]
    assert batcher.pending == 2
    assert [ids(batch) for batch in batcher.poll(0, [1]).batches] == [[2]]
    assert batcher.backlog == 1
    batcher.restore(0, 0)
    assert [ids(batch) for batch in batcher.poll(0, [0]).batches] == [[3]]


class Machine(RuleBasedStateMachine):
    """Random sequences, failures and deaths: nothing is lost, run twice or out of order, and whoever can run does."""

    batcher: SequenceBatcher

    @initialize(
        kind=st.sampled_from(["direct", "oldest", "passes"]),
        slots=st.integers(1, 3),
        instances=st.integers(1, 2),
        size=st.sampled_from([0, 1, 3]),
    )
    def begin(self, kind: str, slots: int, instances: int, size: int) -> None:
        if kind == "passes":
            self.batcher = iterative(is_direct=size == 0, slots=slots, instances=instances)
        else:
            self.batcher = direct(slots, instances) if kind == "direct" else oldest(slots, instances, size)
        self.has_passes = kind == "passes"
        self.slots = slots
        self.instances = instances
        self.gone: set[int] = set()
        self.now = 0
        self.waiting: list[InferenceRequest] = []
        self.running: dict[int, SequenceBatch] = {}
        self.pushed: list[InferenceRequest] = []  # kept alive, so that identities stay apart
        self.sequence: dict[int, Sequence] = {}
        self.ran: dict[Sequence, list[int]] = defaultdict(list)
        self.places: dict[Sequence, set[tuple[int, int]]] = defaultdict(set)

    @rule(
        number=st.integers(0, 5),
        start=st.booleans(),
        end=st.booleans(),
        timeout_us=st.sampled_from([0, 0, 300_000]),
        patience=st.sampled_from([0, 0, 0, IDLE // 4]),
    )
    def push(self, number: int, start: bool, end: bool, timeout_us: int, patience: int) -> None:
        one = request(number, "S" * start + "E" * end, timeout_us=timeout_us)
        one.deadline_ns = self.now + patience if patience else 0
        try:
            self.batcher.push(one, self.now)
        except InferenceError:
            assert not start or not number
            return
        self.waiting.append(one)
        one.priority = len(self.pushed)  # its number; sequences have no priorities
        self.pushed.append(one)
        self.sequence[id(one)] = self.batcher._of[id(one)]

    @rule(step=st.sampled_from([0, MS, IDLE // 2, IDLE]))
    def poll(self, step: int) -> None:
        self.now += step
        free = [number for number in range(self.instances) if number not in self.running and number not in self.gone]
        poll = self.batcher.poll(self.now, free)
        for one, _ in poll.failed:
            self._gone(one)
        for batch in poll.batches:
            assert batch.instance in free
            assert batch.requests
            self.running[batch.instance] = batch
            slots = [row.slot for row in batch.rows]
            assert len(set(slots)) == len(slots)
            for row in batch.rows:
                if row.request is not None:
                    self._gone(row.request)
                    sequence = self.sequence[id(row.request)]
                    assert row.sequence is sequence
                    self.ran[sequence].append(row.request.priority)
                    self.places[sequence].add((batch.instance, row.slot))
        if poll.wake_at_ns is not None:
            assert poll.wake_at_ns > self.now

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        batch = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        again = [one for one in batch.requests if self.has_passes and data.draw(st.booleans())]
        lost = self.batcher.finished(batch, self.now, again)
        for one in again:
            if not any(one is other for other in lost):
                self.waiting.append(one)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        one = self.waiting[data.draw(st.integers(0, len(self.waiting) - 1))]
        gone = self.batcher.cancel(one, self.now)
        assert gone
        assert gone[0] is one
        for other in gone:
            assert other.sequence_id == one.sequence_id
            self._gone(other)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """An instance goes for long: what it ran fails, and what waits for it is returned."""
        number = data.draw(st.integers(0, self.instances - 1))
        if number in self.running:
            assert self.batcher.finished(self.running.pop(number), self.now) == []
        self.gone.add(number)
        for one in self.batcher.abandon(number):
            self._gone(one)

    @precondition(lambda self: self.gone)
    @rule()
    def come_back(self) -> None:
        number = self.gone.pop()
        self.batcher.restore(number, self.now)

    def _gone(self, one: InferenceRequest) -> None:
        (position,) = [at for at, other in enumerate(self.waiting) if other is one]
        del self.waiting[position]

    @invariant()
    def counts_agree(self) -> None:
        assert self.batcher.pending == len(self.waiting)

    @invariant()
    def each_sequence_runs_in_order_and_in_one_place(self) -> None:
        for sequence, ran in self.ran.items():
            assert ran == sorted(ran)
            assert len(self.places[sequence]) == 1

    @invariant()
    def a_sequence_runs_once_at_a_time(self) -> None:
        for batch in self.running.values():
            sequences = [self.sequence[id(one)] for one in batch.requests]
            assert len(set(sequences)) == len(sequences)

    @invariant()
    def each_slot_has_one_sequence_at_most(self) -> None:
        if not hasattr(self, "batcher"):
            return
        seated = {sequence for sequence in self.sequence.values() if sequence.seat is not None}
        assert len({sequence.seat for sequence in seated}) == len(seated)
        assert not any(sequence.seat and sequence.seat.instance in self.gone for sequence in seated)

    @invariant()
    def nobody_waits_for_a_slot_while_one_is_free(self) -> None:
        if not hasattr(self, "batcher") or not self.batcher.backlog:
            return
        seated = {sequence for sequence in self.sequence.values() if sequence.seat is not None}
        assert len(seated) == self.slots * (self.instances - len(self.gone))

    def teardown(self) -> None:
        """Whatever is left runs, or waits only for a slot whose sequence has not ended."""
        if not hasattr(self, "batcher"):
            return
        while self.gone:
            self.come_back()
        for _ in range(200):
            for number in list(self.running):
                self.batcher.finished(self.running.pop(number), self.now)
            self.poll(IDLE)
            if not self.waiting and not self.running:
                break
        assert not self.waiting


TestMachine = Machine.TestCase
