from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.instances import InstanceThread
from serving_node.scheduling.policy import BatchPolicy, QueuePolicy
from serving_node.scheduling.scheduler import Scheduler

DEADLINE = 30.0


class Gate:
    """An instance that runs a batch only when it is let, and answers with the request's own tensors."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.arrived = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.error: Exception | None = None
        self.closed = False

    def execute(self, execution: Execution) -> None:
        self.batches.append([request.id for request in execution.requests])
        self.arrived.release()
        assert self.let.acquire(timeout=DEADLINE)
        if self.error is not None:
            raise self.error
        execution.results.extend(list(request.inputs) for request in execution.requests)

    def close(self) -> None:
        self.closed = True

    async def entered(self) -> None:
        assert await asyncio.to_thread(self.arrived.acquire, timeout=DEADLINE)


class Client:
    def __init__(self) -> None:
        self.responses: dict[str, InferenceResponse] = {}
        self.order: list[str] = []
        self.threads: set[int] = set()
        self._changed = asyncio.Event()

    def request(self, identity: str, rows: int = 1, priority: int = 0) -> InferenceRequest:
        tensor = Tensor("x", "INT8", (rows, 1), identity.encode()[:1] * rows)
        request = InferenceRequest("m", "1", [tensor], self.answered, identity, priority=priority)
        request.batch_size = rows
        return request

    def answered(self, response: InferenceResponse) -> None:
        assert response.id not in self.responses, "answered twice"
        self.responses[response.id] = response
        self.order.append(response.id)
        self.threads.add(threading.get_ident())
        self._changed.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while len(self.responses) < count:
                self._changed.clear()
                await self._changed.wait()

    def code(self, identity: str) -> ErrorCode | None:
        error = self.responses[identity].error
        return error.code if error else None


@pytest.fixture
def gates() -> Iterator[list[Gate]]:
    made: list[Gate] = []
    yield made
    for gate in made:
        for _ in range(100):
            gate.let.release()


Start = Callable[..., Scheduler]


@pytest.fixture
def start(gates: list[Gate]) -> Start:
    def make(policy: BatchPolicy | None = None, instances: int = 1) -> Scheduler:
        gates.extend(Gate() for _ in range(instances))
        threads = [InstanceThread(f"m_{index}", gate) for index, gate in enumerate(gates)]
        return Scheduler(name="m", version=1, policy=policy, instances=threads, statistics=ModelStatistics())

    return make


async def finish(scheduler: Scheduler, gates: list[Gate]) -> None:
    for gate in gates:
        for _ in range(100):
            gate.let.release()
    await scheduler.close(DEADLINE)
    assert all(gate.closed for gate in gates)


async def test_requests_that_wait_together_run_together(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(4)), Client()
    scheduler.submit(client.request("a"))
    await gates[0].entered()
    for identity in "bcdef":
        scheduler.submit(client.request(identity))
    assert scheduler.pending_count() == 5
    assert scheduler.inflight_count() == 6
    for _ in range(3):
        gates[0].let.release()
    await client.wait_for(6)

    assert gates[0].batches == [["a"], ["b", "c", "d", "e"], ["f"]]
    assert client.threads == {threading.get_ident()}
    statistics = scheduler._statistics
    assert (statistics.inference_count, statistics.execution_count) == (6, 3)
    assert {size: counters.compute_infer.count for size, counters in statistics.batches.items()} == {1: 2, 4: 1}
    assert bytes(client.responses["c"].outputs[0].data) == b"c"
    await finish(scheduler, gates)


async def test_requests_of_one_turn_of_the_loop_share_the_first_batch(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(8)), Client()
    for identity in "abc":
        scheduler.submit(client.request(identity))
    gates[0].let.release()
    await client.wait_for(3)
    assert gates[0].batches == [["a", "b", "c"]]
    await finish(scheduler, gates)


async def test_default_scheduler_uses_every_free_instance(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(None, instances=2), Client()
    for identity in "abc":
        scheduler.submit(client.request(identity, rows=2))
    await gates[0].entered()
    await gates[1].entered()
    assert sorted(gates[0].batches + gates[1].batches) == [["a"], ["b"]]
    assert scheduler.pending_count() == 1
    await finish(scheduler, gates)
    assert client.code("a") is None


async def test_failing_batch_fails_alone(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(2)), Client()
    gates[0].error = ValueError("engine broke")
    for identity in "ab":
        scheduler.submit(client.request(identity))
    gates[0].let.release()
    await client.wait_for(2)
    gates[0].error = None
    scheduler.submit(client.request("c"))
    gates[0].let.release()
    await client.wait_for(3)

    assert [client.code(identity) for identity in "abc"] == [ErrorCode.INTERNAL, ErrorCode.INTERNAL, None]
    assert client.responses["a"].error is not None
    assert client.responses["a"].error.message == "engine broke"
    assert scheduler._statistics.failures[FailureReason.BACKEND] == 2
    await finish(scheduler, gates)


async def test_cancelled_while_queued_is_answered_and_siblings_run(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(4)), Client()
    scheduler.submit(client.request("a"))
    await gates[0].entered()
    queued = [client.request(identity) for identity in "bcd"]
    for request in queued:
        scheduler.submit(request)
    queued[0].cancel()
    queued[0].cancel()
    assert client.responses == {}, "cancel() never answers inside"
    await client.wait_for(1)
    assert client.code("b") is ErrorCode.CANCELLED
    for _ in range(2):
        gates[0].let.release()
    await client.wait_for(4)
    await finish(scheduler, gates)
    assert gates[0].batches == [["a"], ["c", "d"]]
    assert scheduler._statistics.failures[FailureReason.CANCELED] == 1


async def test_cancelled_while_running_is_answered_once(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(4)), Client()
    request = client.request("a")
    scheduler.submit(request)
    await gates[0].entered()
    request.cancel()
    gates[0].let.release()
    await client.wait_for(1)
    assert client.code("a") is None
    await finish(scheduler, gates)


async def test_queue_timeout_fires_while_the_instance_is_busy(start: Start, gates: list[Gate]) -> None:
    level = QueuePolicy(default_timeout_ns=500_000_000)
    scheduler, client = start(BatchPolicy(4, levels=(level,))), Client()
    scheduler.submit(client.request("a"))
    await gates[0].entered()
    scheduler.submit(client.request("b"))
    await client.wait_for(1)

    error = client.responses["b"].error
    assert error is not None
    assert (error.code, error.message) == (ErrorCode.UNAVAILABLE, "Request timeout expired")
    assert scheduler._statistics.failures[FailureReason.REJECTED] == 1
    await finish(scheduler, gates)


async def test_queue_delay_runs_a_small_batch_by_timer(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(4, max_queue_delay_ns=300_000_000)), Client()
    gates[0].let.release()
    scheduler.submit(client.request("a"))
    await asyncio.sleep(0)
    scheduler.submit(client.request("b"))
    await client.wait_for(2)
    assert gates[0].batches == [["a", "b"]]
    await finish(scheduler, gates)


async def test_full_queue_refuses_but_not_while_an_instance_is_idle(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(1, levels=(QueuePolicy(max_queue_size=1),))), Client()
    scheduler.submit(client.request("a"))
    scheduler.submit(client.request("b"))
    with pytest.raises(InferenceError, match="Exceeds maximum queue size"):
        scheduler.submit(client.request("c"))
    await finish(scheduler, gates)
    assert set(client.responses) == {"a", "b"}
    assert scheduler._statistics.fail.count == 1  # "b", stopped by close; the refused one is not counted


async def test_preserve_ordering_answers_in_order_of_arrival(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(1, preserve_ordering=True), instances=2), Client()
    scheduler.submit(client.request("a"))
    scheduler.submit(client.request("b"))
    await gates[0].entered()
    await gates[1].entered()
    second = gates[0] if gates[0].batches == [["b"]] else gates[1]
    second.let.release()
    scheduler.submit(client.request("c"))
    await second.entered()  # the instance went on, although its answer is held back
    assert client.order == []
    await finish(scheduler, gates)
    assert client.order == ["a", "b", "c"]


async def test_drain_refuses_new_requests_and_waits_for_old_ones(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(1)), Client()
    for identity in "ab":
        scheduler.submit(client.request(identity))
    assert not await scheduler.drain(0.01)
    with pytest.raises(InferenceError, match="scheduler for model has stopped accepting"):
        scheduler.submit(client.request("c"))
    for _ in range(2):
        gates[0].let.release()
    assert await scheduler.drain(DEADLINE)
    assert [client.code(identity) for identity in "ab"] == [None, None]
    await finish(scheduler, gates)


async def test_close_answers_what_is_queued(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(1)), Client()
    for identity in "abc":
        scheduler.submit(client.request(identity))
    await gates[0].entered()
    gates[0].let.release()
    await scheduler.close(DEADLINE)
    assert [client.code(identity) for identity in "abc"] == [None, ErrorCode.UNAVAILABLE, ErrorCode.UNAVAILABLE]
    await scheduler.close(DEADLINE)


async def test_callback_that_raises_does_not_hurt_siblings(start: Start, gates: list[Gate]) -> None:
    scheduler, client = start(BatchPolicy(4)), Client()
    bad = client.request("a")

    def explode(response: InferenceResponse) -> None:
        raise RuntimeError("frontend bug")

    bad.on_response = explode
    scheduler.submit(bad)
    scheduler.submit(client.request("b"))
    gates[0].let.release()
    await client.wait_for(1)
    assert scheduler.inflight_count() == 0
    await finish(scheduler, gates)
