"""The shell around the sequence batcher: instances of both kinds, passes, cancelling, death, and the end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import normalise, parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.instances import InstanceThread, LoopRunner
from serving_node.scheduling.rate_limit import GLOBAL, Limit, Need
from serving_node.scheduling.scheduler import STOPPED
from serving_node.scheduling.sequence_policy import sequence_policy
from serving_node.scheduling.sequence_rows import SequenceRows
from serving_node.scheduling.sequences import SequenceScheduler
from serving_node.scheduling.turns import Share, Turns
from tests.serving_node.scheduling.test_loop_instances import Played

DIRECT = "direct { }"
OLDEST = "oldest { max_candidate_sequences: %d }"
ITERATIVE = "iterative_sequence: true " + OLDEST % 4
CONTROL = 'control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }'


class Running(Played):
    """An instance whose part the test plays."""

    def finish_one(self, *, again: bool = False) -> list[str]:
        """End the running batch; return what was in it, with a dot for a row without a request."""
        execution = self.running.pop(0)
        execution.results = [list(request.inputs) for request in execution.requests]
        if again:
            execution.results = [None] * len(execution.requests)
            execution.again = list(range(len(execution.requests)))
        self.events.done(execution)
        return [request.id or "." for request in execution.requests]


class Client:
    def __init__(self, scheduler: SequenceScheduler) -> None:
        self.scheduler = scheduler
        self.responses: dict[str, InferenceResponse] = {}

    def send(self, identity: str, *, key: int | str | None = None, **more: int) -> InferenceRequest:
        """``identity``: the number of the sequence, then what tells its requests apart, then S and E."""
        request = InferenceRequest("m", "1", [Tensor("x", "INT8", (1, 1), b"7")], self.answered, identity, **more)
        request.sequence_id = int(identity[0]) if key is None else key
        request.sequence_start, request.sequence_end = "S" in identity, "E" in identity
        self.scheduler.submit(request)
        return request

    def answered(self, response: InferenceResponse) -> None:
        assert response.id not in self.responses, "answered twice"
        self.responses[response.id] = response

    def code(self, identity: str) -> ErrorCode | None:
        error = self.responses[identity].error
        return error.code if error else None

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.responses) < count:
                await asyncio.sleep(0)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def make(
    *instances: Running | InstanceThread,
    strategy: str = DIRECT,
    batch: int = 2,
    idle: int = 60_000_000,
    turns: Turns | None = None,
    need: Share | None = None,
) -> tuple[SequenceScheduler, ModelStatistics, Client]:
    text = f'name: "m" backend: "python" max_batch_size: {batch} input {{ name: "x" data_type: TYPE_INT8 dims: [ 1 ] }}'
    batching = f"sequence_batching {{ max_sequence_idle_microseconds: {idle} {strategy} {CONTROL} }}"
    config = normalise(parse_pbtxt(f"{text} {batching}"))
    policy = sequence_policy(config)
    assert policy is not None
    statistics = ModelStatistics()
    runners = [
        one if isinstance(one, InstanceThread) else LoopRunner(f"m_{number}", one)
        for number, one in enumerate(instances)
    ]
    if turns is not None and need is not None:
        turns.add(dict.fromkeys(runners, need))
    scheduler = SequenceScheduler(
        name="m",
        version=1,
        policy=policy,
        rows=SequenceRows(config, Path()),
        instances=runners,
        statistics=statistics,
        turns=turns,
    )
    return scheduler, statistics, Client(scheduler)


async def test_rows_without_a_request_are_run_but_not_answered_or_counted() -> None:
    instance = Running()
    scheduler, statistics, client = make(instance, batch=3)
    for identity in ("1S", "2S", "3S"):
        client.send(identity)
    await turns()
    assert instance.finish_one() == ["1S", "2S", "3S"]
    client.send("3E")
    await turns()
    ready = [request.inputs[-1].data[0] for request in instance.running[0].requests]
    assert ready == [0, 0, 1]
    assert instance.finish_one() == [".", ".", "3E"]
    assert sorted(client.responses) == ["1S", "2S", "3E", "3S"]
    assert (statistics.success.count, statistics.execution_count, statistics.inference_count) == (4, 2, 4)
    assert scheduler.pending_count() == 0
    await scheduler.close()


async def test_sequences_stay_with_their_instance() -> None:
    first, second = Running(), Running()
    scheduler, _, client = make(first, second, batch=1)
    for identity in ("1S", "2S", "1E", "2E"):
        client.send(identity)
    await turns()
    assert [first.finish_one(), second.finish_one(), first.finish_one(), second.finish_one()] == [
        ["1S"],
        ["2S"],
        ["1E"],
        ["2E"],
    ]
    await scheduler.close()


async def test_the_next_batch_is_given_before_the_last_one_is_answered() -> None:
    instance = Running()
    scheduler, _, client = make(instance, strategy=OLDEST % 2)
    client.send("1S")
    await turns()
    client.send("1E")
    running: list[int] = []
    one = InferenceRequest("m", "1", [], lambda response: running.append(len(instance.running)), sequence_id=2)
    one.sequence_start = one.sequence_end = True
    scheduler.submit(one)
    await turns()
    assert instance.finish_one() == ["1S"]
    assert [request.sequence_id for request in instance.running[0].requests] == [2, 1]
    instance.finish_one()
    assert running == [0]
    await scheduler.close()


async def test_cancelling_a_queued_request_ends_its_sequence_and_answers_those_behind_it() -> None:
    instance = Running()
    scheduler, statistics, client = make(instance, batch=1)
    client.send("1S")
    await turns()
    left = client.send("1a")
    client.send("1b")
    client.send("2SE")
    left.cancel()
    assert "1a" not in client.responses  # not inside cancel()
    await turns()
    assert (client.code("1a"), client.code("1b")) == (ErrorCode.CANCELLED, ErrorCode.CANCELLED)
    with pytest.raises(InferenceError, match="START"):
        client.send("1c")
    assert instance.finish_one() == ["1S"]
    assert instance.finish_one() == ["2SE"]
    assert statistics.failures[FailureReason.CANCELED] == 2
    await scheduler.close()


async def test_a_request_whose_caller_waits_no_more_ends_its_sequence() -> None:
    instance = Running()
    scheduler, _, client = make(instance)
    client.send("1S")
    await turns()
    client.send("1a", deadline_ns=1)
    client.send("1b")
    await turns()
    assert (client.code("1a"), client.code("1b")) == (ErrorCode.UNAVAILABLE, ErrorCode.CANCELLED)
    instance.finish_one()
    assert not instance.running
    await scheduler.close()


async def test_a_sequence_gives_up_waiting_for_a_slot_although_nothing_else_happens() -> None:
    scheduler, statistics, client = make(Running(), batch=1)
    client.send("1S")
    client.send("2S", timeout_us=1000)
    client.send("2E")
    await client.wait_for(2)
    assert {client.code("2S"), client.code("2E")} == {ErrorCode.UNAVAILABLE}
    assert statistics.failures[FailureReason.REJECTED] == 2
    await scheduler.close()


async def test_an_idle_sequence_makes_room_although_nothing_else_happens() -> None:
    instance = Running()
    scheduler, _, client = make(instance, batch=1, idle=1000)
    client.send("1S")
    await turns()
    instance.finish_one()
    client.send("2SE")
    async with asyncio.timeout(30):
        while not instance.running:
            await asyncio.sleep(0)
    assert instance.finish_one() == ["2SE"]
    await scheduler.close()


async def test_a_request_runs_until_the_model_wants_no_more_passes() -> None:
    instance = Running()
    scheduler, statistics, client = make(instance, strategy=ITERATIVE)
    request = client.send("1", key=0)
    await turns()
    assert (request.sequence_id, request.sequence_start) == (1, True)
    tensors = len(request.inputs)
    assert instance.finish_one(again=True) == ["1"]
    assert not client.responses
    assert (request.sequence_start, len(request.inputs)) == (False, tensors)
    other = client.send("2", key=0)
    await turns()
    assert other.sequence_id == 2
    assert instance.finish_one() == ["1"]
    assert instance.finish_one() == ["2"]
    assert sorted(client.responses) == ["1", "2"]
    assert (statistics.success.count, statistics.execution_count) == (2, 3)
    assert scheduler.inflight_count() == 0
    await scheduler.close()


async def test_a_request_that_is_cancelled_between_its_passes_runs_no_more() -> None:
    instance = Running()
    scheduler, _, client = make(instance, strategy=ITERATIVE)
    request = client.send("1", key=0)
    await turns()
    request.cancel()
    instance.finish_one(again=True)
    await turns()
    assert client.code("1") is ErrorCode.CANCELLED
    assert not instance.running
    assert scheduler.inflight_count() == 0
    await scheduler.close()


async def test_a_request_between_its_passes_is_answered_when_the_scheduler_closes() -> None:
    instance = Running()
    scheduler, _, client = make(instance, strategy=ITERATIVE)
    client.send("1", key=0)
    await turns()
    closing = asyncio.ensure_future(scheduler.close())
    await turns()
    instance.finish_one(again=True)
    await closing
    assert client.code("1") is ErrorCode.UNAVAILABLE


async def test_what_a_dead_instance_ran_fails_and_its_sequences_go_on_when_it_is_back() -> None:
    instance = Running()
    scheduler, _, client = make(instance)
    client.send("1S")
    await turns()
    client.send("1E")
    instance.die()
    assert client.code("1S") is ErrorCode.INTERNAL
    assert not instance.running
    instance.come_back()
    await turns()
    assert instance.finish_one() == ["1E"]
    await scheduler.close()


async def test_sequences_of_an_instance_that_is_gone_for_long_are_over_and_others_take_over() -> None:
    first, second = Running(), Running()
    scheduler, _, client = make(first, second, batch=1)
    client.send("1S")
    client.send("2S")
    await turns()
    client.send("1a")
    client.send("3S")  # waits for a slot
    first.die(InferenceError(ErrorCode.INTERNAL, "it will not be back soon"))
    assert (client.code("1S"), client.code("1a")) == (ErrorCode.INTERNAL, ErrorCode.INTERNAL)
    with pytest.raises(InferenceError, match="START"):
        client.send("1b")
    client.send("2E")
    await turns()
    assert second.finish_one() == ["2S"]
    assert second.finish_one() == ["2E"]
    assert second.finish_one() == ["3S"]
    client.send("4SE")
    await turns()
    assert not first.running
    first.come_back()
    await turns()
    assert first.finish_one() == ["4SE"]
    await scheduler.close()


async def test_when_all_instances_are_gone_everything_is_answered_and_new_requests_are_refused() -> None:
    instance = Running()
    scheduler, _, client = make(instance, batch=1)
    for identity in ("1S", "1E", "2S", "3S"):
        client.send(identity)
    await turns()
    instance.die(InferenceError(ErrorCode.INTERNAL, "it will not be back soon"))
    await turns()
    assert sorted(client.responses) == ["1E", "1S", "2S", "3S"]
    with pytest.raises(InferenceError, match="will not be back"):
        client.send("4S")
    instance.come_back()
    client.send("4SE")
    await turns()
    assert instance.finish_one() == ["4SE"]
    await scheduler.close()


async def test_a_sequence_may_end_while_the_scheduler_drains_but_none_may_begin() -> None:
    instance = Running()
    scheduler, _, client = make(instance)
    client.send("1S")
    await turns()
    instance.finish_one()
    assert scheduler.inflight_count() == 1  # the sequence goes on
    assert await scheduler.drain(1.0)
    for identity in ("2S", "1S"):
        with pytest.raises(InferenceError, match=STOPPED):
            client.send(identity)
    client.send("1E")
    await turns()
    assert instance.finish_one() == ["1E"]
    assert scheduler.inflight_count() == 0
    await scheduler.close()


async def test_close_answers_what_waits() -> None:
    instance = Running()
    scheduler, _, client = make(instance, batch=1)
    for identity in ("1S", "1a", "2S"):
        client.send(identity)
    await turns()
    closing = asyncio.ensure_future(scheduler.close())
    await turns()
    assert (client.code("1a"), client.code("2S")) == (ErrorCode.UNAVAILABLE, ErrorCode.UNAVAILABLE)
    instance.finish_one()
    await closing
    assert client.code("1S") is None
    assert instance.closed


@pytest.mark.parametrize(
    ("control", "key", "given", "expected"),
    [("TYPE_UINT64", "text", "BYTES", "UINT64"), ("TYPE_STRING", 7, "UINT64", "BYTES")],
)
async def test_an_id_that_the_model_cannot_be_told_is_refused(
    control: str, key: int | str, given: str, expected: str
) -> None:
    named = f'control_input {{ name: "ID" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: {control} }} }}'
    scheduler, _, client = make(Running(), strategy=f"{DIRECT} {named}")
    with pytest.raises(InferenceError) as caught:
        client.send("1S", key=key)
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == (
        f"sequence batching control 'ID' data-type is '{given}', but model 'm' expects '{expected}'"
    )
    assert scheduler.inflight_count() == 0
    await scheduler.close()


async def test_sequences_take_turns_with_others_where_the_node_has_a_rate_limiter() -> None:
    first, second = Running(), Running()
    turns_of_all = Turns([Limit("R", 1)])
    need = Share((Need("R", 1, GLOBAL),))
    schedulers = []
    for instance in (first, second):
        scheduler, _, client = make(instance, turns=turns_of_all, need=need)
        schedulers.append(scheduler)
        for identity in ("1S", "1E"):
            client.send(identity)
    await turns()
    ran: list[str] = []
    for _ in range(4):
        (running,) = (number for number, one in enumerate((first, second)) if one.running)
        ran.append(f"{running} {(first, second)[running].finish_one()[0]}")
        await turns()
    assert sorted(ran) == ["0 1E", "0 1S", "1 1E", "1 1S"]
    assert not first.running
    assert not second.running
    for scheduler in schedulers:
        await scheduler.close()


class Summing:
    """An instance with a thread, which keeps sums by itself and says whether any sequence ran twice at a time."""

    def __init__(self) -> None:
        self.sums: dict[int | str, int] = {}
        self.lock = threading.Lock()

    def execute(self, execution: Execution) -> None:
        assert self.lock.acquire(blocking=False)
        keys = [request.sequence_id for request in execution.requests if request.sequence_id]
        assert len(set(keys)) == len(keys)
        for request in execution.requests:
            if request.sequence_id:
                before = 0 if request.sequence_start else self.sums[request.sequence_id]
                self.sums[request.sequence_id] = before + 1
            total = self.sums.get(request.sequence_id, 0)
            execution.results.append([Tensor("y", "INT8", (1, 1), bytes([total]))])
        self.lock.release()

    def close(self) -> None: ...


@pytest.mark.parametrize("strategy", [DIRECT, OLDEST % 40])
async def test_a_thousand_sequences_at_once(strategy: str) -> None:
    instances = [InstanceThread(f"m_{number}", Summing()) for number in range(2)]
    scheduler, statistics, client = make(*instances, strategy=strategy, batch=16)
    for step in ("S", "a", "b", "E"):
        for key in range(1, 1001):
            client.send(f"{key:04}/{step}", key=key)
    assert scheduler.pending_count() == 4000
    async with asyncio.timeout(60):
        while len(client.responses) < 4000:
            await asyncio.sleep(0.01)
    for identity, response in client.responses.items():
        assert response.error is None
        if identity.endswith(("S", "E")):
            assert response.outputs[0].data == (b"\1" if identity.endswith("S") else b"\4")
    assert statistics.success.count == 4000
    assert scheduler.inflight_count() == 0
    await scheduler.close()
