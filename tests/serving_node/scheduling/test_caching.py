from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse, Parameter
from serving_node.core.tensor import Tensor
from serving_node.observability.families import to_text
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.cached_response import pack_response
from serving_node.scheduling.caching import CachedScheduler
from serving_node.scheduling.response_cache import INLINE_BYTES, Answer, LocalCache

DEADLINE = 30.0


class Behind:
    """A scheduler that answers when it is told to, with the request's inputs."""

    def __init__(self) -> None:
        self.waiting: list[InferenceRequest] = []
        self.taken = 0
        self.refusal: InferenceError | None = None
        self.closed = False

    def submit(self, request: InferenceRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        if request.cancelled:
            raise InferenceError(ErrorCode.CANCELLED, "")
        request.on_cancel = self.cancel
        self.taken += 1
        self.waiting.append(request)

    def answer(self, position: int = 0, **changes: Any) -> None:
        request = self.waiting.pop(position)
        request.on_cancel = None
        values: dict[str, Any] = {"outputs": list(request.inputs), "parameters": {"n": self.taken}, **changes}
        request.on_response(InferenceResponse("m", "1", request.id, **values))

    def cancel(self, request: InferenceRequest) -> None:
        self.waiting.remove(request)
        error = InferenceError(ErrorCode.CANCELLED, "")
        asyncio.get_running_loop().call_soon(request.on_response, InferenceResponse("m", "1", request.id, error=error))

    def ready(self) -> bool:
        return True

    def pending_count(self) -> int:
        return len(self.waiting)

    def inflight_count(self) -> int:
        return len(self.waiting)

    async def drain(self, timeout_seconds: float) -> bool:
        return not self.waiting

    async def close(self, timeout_seconds: float = 10.0) -> None:
        self.closed = True
        while self.waiting:
            self.answer(outputs=[], error=InferenceError(ErrorCode.UNAVAILABLE, "stopped"))


class Remote(LocalCache):
    """A cache whose answers come when the test lets them."""

    def __init__(self, capacity: int = 1 << 20) -> None:
        super().__init__(capacity)
        self.asked: list[Callable[[], None]] = []

    def look_up(self, key: bytes, found: Callable[[bytes | None], None]) -> None:
        self.asked.append(lambda: LocalCache.look_up(self, key, found))

    def reply(self, position: int = 0) -> None:
        self.asked.pop(position)()


class Client:
    def __init__(self) -> None:
        self.order: list[str] = []
        self.responses: dict[str, InferenceResponse] = {}
        self._changed = asyncio.Event()

    def request(self, identity: str, data: bytes = b"x", **changes: Any) -> InferenceRequest:
        tensor = Tensor("x", "UINT8", (len(data),), data)
        return InferenceRequest("m", "1", [tensor], self.answered, identity, arrival_ns=1, **changes)

    def answered(self, response: InferenceResponse) -> None:
        assert response.id not in self.responses, "answered twice"
        self.responses[response.id] = response
        self.order.append(response.id)
        self._changed.set()

    async def wait_for(self, *identities: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while not set(identities) <= self.responses.keys():
                self._changed.clear()
                await self._changed.wait()

    def data(self, identity: str) -> bytes:
        (tensor,) = self.responses[identity].outputs
        return bytes(tensor.data)

    def code(self, identity: str) -> ErrorCode | None:
        error = self.responses[identity].error
        return error.code if error else None


class Setup:
    def __init__(self, cache: LocalCache, **options: Any) -> None:
        self.cache = cache
        self.behind = Behind()
        self.client = Client()
        self.statistics = ModelStatistics()
        values: dict[str, Any] = {"namespace": lambda: b"n", "owner": b"owner", **options}
        self.scheduler = CachedScheduler(self.behind, cache, name="m", version=1, statistics=self.statistics, **values)

    def submit(self, identity: str, data: bytes = b"x", **changes: Any) -> InferenceRequest:
        request = self.client.request(identity, data, **changes)
        self.scheduler.submit(request)
        return request

    def counts(self) -> tuple[int, int, int]:
        """Successes, hits and misses."""
        statistics = self.statistics
        return statistics.success.count, statistics.cache_hit.count, statistics.cache_miss.count


@pytest.fixture
async def local() -> AsyncIterator[Setup]:
    setup = Setup(LocalCache(1 << 20))
    yield setup
    await setup.cache.close()


@pytest.fixture
async def remote() -> AsyncIterator[tuple[Setup, Remote]]:
    cache = Remote()
    setup = Setup(cache)
    yield setup, cache
    await cache.close()


async def test_the_second_of_two_equal_requests_is_not_executed(local: Setup) -> None:
    local.submit("a", b"one")
    local.behind.answer()
    local.submit("b", b"one")
    assert "b" not in local.client.responses, "the caller of submit() expects no answer inside"
    assert local.scheduler.inflight_count() == 1
    await local.client.wait_for("b")
    assert local.behind.taken == 1
    first, second = local.client.responses["a"], local.client.responses["b"]
    assert (local.client.data("b"), second.parameters) == (b"one", first.parameters)
    assert (second.model_name, second.model_version, second.id, second.final) == ("m", "1", "b", True)
    assert local.counts() == (1, 1, 1)
    assert (local.statistics.queue.count, local.statistics.inference_count) == (1, 0)
    assert local.scheduler.inflight_count() == 0


async def test_equal_requests_at_the_same_time_all_run(local: Setup) -> None:
    for identity in "abc":
        local.submit(identity)
    assert local.behind.taken == 3
    for _ in range(3):
        local.behind.answer()
    await local.client.wait_for("a", "b", "c")
    assert local.counts()[1:] == (0, 3)


@pytest.mark.parametrize(
    "answer",
    [
        {"outputs": [], "error": InferenceError(ErrorCode.INTERNAL, "no")},
        {"outputs": [], "flag_only": True},
        {"parameters": {"n": float("nan")}},
    ],
)
async def test_answers_that_are_none_are_not_kept(local: Setup, answer: dict[str, Any]) -> None:
    local.submit("a")
    local.behind.answer(**answer)
    local.submit("b")
    assert local.behind.taken == 2
    local.behind.answer()


async def test_an_answer_in_parts_is_passed_on_and_not_kept(local: Setup) -> None:
    parts: list[InferenceResponse] = []
    request = local.client.request("a")
    request.on_response = parts.append
    local.scheduler.submit(request)
    local.behind.waiting[0].on_response(InferenceResponse("m", "1", "a", final=False))
    local.behind.answer()
    assert [part.final for part in parts] == [False, True]
    local.submit("b")
    assert local.behind.taken == 2
    local.behind.answer()


@pytest.mark.parametrize("changes", [{"sequence_id": 5}, {"sequence_id": "s"}, {"sequence_start": True}])
async def test_requests_of_sequences_are_neither_found_nor_kept(local: Setup, changes: dict[str, Any]) -> None:
    local.submit("a")
    local.behind.answer()
    for identity in "bc":
        local.submit(identity, **changes)
        local.behind.answer()
    assert local.behind.taken == 3
    assert local.counts()[1:] == (0, 1)


async def test_nothing_is_kept_while_nobody_can_say_what_answers_depend_on() -> None:
    setup = Setup(LocalCache(1 << 20), namespace=lambda: None)
    for identity in "ab":
        setup.submit(identity)
        setup.behind.answer()
    assert setup.behind.taken == 2
    assert setup.counts()[1:] == (0, 0)
    await setup.cache.close()


async def test_another_namespace_has_other_answers() -> None:
    namespace = b"old"
    setup = Setup(LocalCache(1 << 20), namespace=lambda: namespace)
    setup.submit("a")
    setup.behind.answer()
    namespace = b"new"
    setup.submit("b")
    setup.behind.answer()
    setup.submit("c")
    await setup.client.wait_for("c")
    assert (setup.behind.taken, setup.client.responses["c"].parameters) == (2, {"n": 2})
    await setup.cache.close()


async def test_an_answer_from_before_or_after_a_change_is_not_kept() -> None:
    namespace = b"old"
    setup = Setup(LocalCache(1 << 20), namespace=lambda: namespace)
    setup.submit("a")
    namespace = b"new"
    setup.behind.answer()
    namespace = b"old"
    setup.submit("b")
    assert setup.behind.taken == 2
    setup.behind.answer()
    await setup.cache.close()


async def test_a_refusal_reaches_the_caller_of_submit(local: Setup) -> None:
    local.behind.refusal = InferenceError(ErrorCode.UNAVAILABLE, "full")
    request = local.client.request("a")
    with pytest.raises(InferenceError, match="full"):
        local.scheduler.submit(request)
    assert request.on_response == local.client.answered
    assert (local.scheduler.inflight_count(), local.client.responses) == (0, {})


async def test_a_refusal_after_a_lookup_is_an_answer(remote: tuple[Setup, Remote]) -> None:
    setup, cache = remote
    setup.submit("a")
    assert (setup.scheduler.pending_count(), setup.scheduler.inflight_count()) == (1, 1)
    setup.behind.refusal = InferenceError(ErrorCode.UNAVAILABLE, "full")
    cache.reply()
    assert setup.client.code("a") is ErrorCode.UNAVAILABLE
    assert (setup.scheduler.pending_count(), setup.scheduler.inflight_count()) == (0, 0)


async def test_a_bug_after_a_lookup_is_an_answer_too(remote: tuple[Setup, Remote]) -> None:
    setup, cache = remote
    setup.submit("a")
    setup.behind.submit = None  # type: ignore[assignment,method-assign]
    cache.reply()
    assert setup.client.code("a") is ErrorCode.INTERNAL
    assert setup.scheduler.inflight_count() == 0


async def test_an_answer_that_cannot_be_inserted_is_an_answer(local: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.cache, "insert", None)
    local.submit("a")
    local.behind.answer()
    assert local.client.data("a") == b"x"


async def test_a_request_is_cancelled_during_its_lookup(remote: tuple[Setup, Remote]) -> None:
    setup, cache = remote
    request = setup.submit("a")
    request.cancel()
    assert not setup.client.responses
    await setup.client.wait_for("a")
    cache.reply()
    assert (setup.client.code("a"), setup.behind.taken) == (ErrorCode.CANCELLED, 0)
    assert setup.statistics.failures[FailureReason.CANCELED] == 1
    assert setup.scheduler.inflight_count() == 0


async def test_a_request_is_cancelled_during_its_execution(remote: tuple[Setup, Remote]) -> None:
    setup, cache = remote
    request = setup.submit("a")
    cache.reply()
    request.cancel()
    await setup.client.wait_for("a")
    assert (setup.client.code("a"), setup.behind.taken) == (ErrorCode.CANCELLED, 1)


async def test_a_cancelled_request_is_not_taken(local: Setup) -> None:
    request = local.client.request("a")
    request.cancel()
    with pytest.raises(InferenceError) as refused:
        local.scheduler.submit(request)
    assert refused.value.code is ErrorCode.CANCELLED


async def test_draining_waits_for_lookups_and_what_follows(remote: tuple[Setup, Remote]) -> None:
    setup, cache = remote
    setup.submit("a")
    draining = asyncio.ensure_future(setup.scheduler.drain(DEADLINE))
    await asyncio.sleep(0)
    with pytest.raises(InferenceError, match="stopped accepting"):
        setup.submit("b")
    assert not setup.scheduler.ready()
    cache.reply()
    assert not draining.done()
    setup.behind.answer()
    assert await draining
    assert setup.client.code("a") is None


async def test_draining_ends_when_the_time_is_over(remote: tuple[Setup, Remote]) -> None:
    setup, _ = remote
    setup.submit("a")
    assert not await setup.scheduler.drain(0.01)


async def test_closing_answers_lookups_and_frees_memory(remote: tuple[Setup, Remote]) -> None:
    setup, cache = remote
    setup.submit("a", b"one")
    cache.reply()
    setup.behind.answer()
    setup.submit("b", b"two")
    await setup.scheduler.close()
    cache.reply()
    assert setup.client.code("b") is ErrorCode.UNAVAILABLE
    assert (setup.behind.closed, setup.behind.taken) == (True, 1)
    assert b"nv_cache_num_entries 0" in to_text(cache.families())
    await setup.scheduler.close()


async def test_large_inputs_and_outputs_are_handled_in_threads(local: Setup) -> None:
    data = bytes(range(256)) * (INLINE_BYTES // 128)
    local.submit("a", data)
    assert local.scheduler.pending_count() == 1
    async with asyncio.timeout(DEADLINE):
        while not local.behind.waiting:
            await asyncio.sleep(0.001)
    local.behind.answer()
    assert local.client.data("a") == data, "the answer does not wait for the copy"
    async with asyncio.timeout(DEADLINE):
        while not local.statistics.cache_miss.count:
            await asyncio.sleep(0.001)
    local.submit("b", data)
    await local.client.wait_for("b")
    assert (local.client.data("b"), local.behind.taken) == (data, 1)


class Region:
    """Memory of a client's."""

    def store(self, tensor: Tensor) -> bool:
        return False

    def release(self) -> None:
        return


async def test_a_client_cannot_change_shared_memory_under_the_key(local: Setup) -> None:
    memory = bytearray(b"good")
    request = local.client.request("a", memory, lease=Region())
    local.scheduler.submit(request)
    async with asyncio.timeout(DEADLINE):
        while not local.behind.waiting:
            await asyncio.sleep(0.001)
    memory[:] = b"evil"
    local.behind.answer()
    local.submit("b", b"good")
    await local.client.wait_for("b")
    assert (local.behind.taken, local.client.data("b")) == (1, b"good")


async def test_what_cannot_be_read_is_executed(local: Setup) -> None:
    local.submit("a")
    local.behind.answer()
    (key,) = local.cache._index._held
    local.cache._index.put(key, b"garbage", 7, b"owner")
    local.submit("b")
    assert local.behind.taken == 2
    local.behind.answer()
    assert local.client.code("b") is None


async def test_hits_leave_in_turn_where_order_is_promised() -> None:
    setup = Setup(LocalCache(1 << 20), preserve_ordering=True)
    setup.submit("first", b"known")
    setup.behind.answer()
    setup.submit("slow", b"other")
    setup.submit("hit", b"known")
    failing = setup.submit("failing", b"third")
    setup.submit("hit2", b"known")
    await asyncio.sleep(0)
    assert setup.client.order == ["first"]
    failing.cancel()
    await setup.client.wait_for("failing")
    assert setup.client.order == ["first", "failing"], "a failure waits for nobody"
    setup.behind.answer()
    assert setup.client.order == ["first", "failing", "slow", "hit", "hit2"]
    assert setup.scheduler.inflight_count() == 0
    await setup.cache.close()


async def test_a_refused_request_holds_up_nobody() -> None:
    setup = Setup(LocalCache(1 << 20), preserve_ordering=True)
    setup.behind.refusal = InferenceError(ErrorCode.UNAVAILABLE, "full")
    with pytest.raises(InferenceError):
        setup.submit("a")
    setup.behind.refusal = None
    setup.submit("b")
    setup.behind.answer()
    assert setup.client.order == ["b"]
    await setup.cache.close()


class Trace:
    def __init__(self) -> None:
        self.marks: list[str] = []
        self.ends = 0

    def mark(self, activity: str, ns: int) -> None:
        self.marks.append(activity)

    def tensors(self, activity: str, tensors: Any) -> None:
        self.marks.append(activity)

    def end(self, ns: int) -> None:
        self.ends += 1


async def test_a_hit_is_traced_without_computing(local: Setup) -> None:
    local.submit("a")
    local.behind.answer()
    trace: Any = Trace()
    local.submit("b", trace=trace)
    await local.client.wait_for("b")
    assert (trace.marks, trace.ends) == (["QUEUE_START", "TENSOR_QUEUE_INPUT"], 1)


async def test_a_callback_that_fails_harms_nobody(local: Setup) -> None:
    request = local.client.request("a")

    def fail(response: InferenceResponse) -> None:
        raise RuntimeError("a frontend's bug")

    request.on_response = fail
    local.scheduler.submit(request)
    local.behind.answer()
    assert local.scheduler.inflight_count() == 0
    local.submit("b")
    await local.client.wait_for("b")


async def test_memory_is_bounded_however_many_answers_come() -> None:
    cache = LocalCache(1 << 20)
    done: list[int] = []
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(20_000):
        data = number.to_bytes(4, "little") * (number % 50)
        outputs = (Tensor("y", "UINT8", (len(data),), data),)
        cache.insert(Answer(number.to_bytes(32, "little"), b"owner", outputs, {}, len(data)), done.append)
    del done[:]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1.5 * (1 << 20)
    text = to_text(cache.families()).decode()
    assert "flotilla_cache_bytes 10" in text
    await cache.close()


async def test_answers_that_are_too_large_are_counted_and_told_once() -> None:
    cache = LocalCache(1000)
    done: list[int] = []
    parameters: dict[str, Parameter] = {}
    with structlog.testing.capture_logs() as lines:
        for number in range(3):
            outputs = (Tensor("y", "UINT8", (2000,), bytes(2000)),)
            cache.insert(Answer(bytes([number]), b"owner", outputs, parameters, 2000), done.append)
    assert [line["event"] for line in lines] == ["cache.answer_not_kept"]
    assert done == [0, 0, 0]
    assert b"flotilla_cache_unfit_total 3" in to_text(cache.families())
    await cache.close()


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["answer", "fail", "reply", "cancel"]), st.integers(0, 5)),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(events=_EVENTS, ordered=st.booleans(), seed=st.integers(0, 9))
def test_every_request_is_answered_once_and_rightly(events: list[tuple[str, int]], ordered: bool, seed: int) -> None:
    asyncio.run(_any_course(events, ordered, random.Random(seed)))


async def _any_course(events: list[tuple[str, int]], ordered: bool, chance: random.Random) -> None:
    cache = Remote()
    setup = Setup(cache, preserve_ordering=ordered)
    sent: dict[str, InferenceRequest] = {}
    for action, number in events:
        if action == "submit":
            identity = str(len(sent))
            sent[identity] = setup.submit(identity, bytes([number]))
        elif action in ("answer", "fail") and setup.behind.waiting:
            error = InferenceError(ErrorCode.INTERNAL, "no")
            changes = {} if action == "answer" else {"outputs": [], "error": error}
            setup.behind.answer(number % len(setup.behind.waiting), **changes)
        elif action == "reply" and cache.asked:
            cache.reply(number % len(cache.asked))
        elif action == "cancel" and sent:
            sent[str(number % len(sent))].cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    while cache.asked:
        cache.reply()
    await asyncio.sleep(0)
    while setup.behind.waiting:
        setup.behind.answer()
    await setup.client.wait_for(*sent)
    for identity, request in sent.items():
        if setup.client.code(identity) is None:
            assert setup.client.data(identity) == bytes(request.inputs[0].data)
    if ordered:
        answered = [int(identity) for identity in setup.client.order if setup.client.code(identity) is None]
        assert answered == sorted(answered)
    assert (setup.scheduler.inflight_count(), setup.scheduler.pending_count()) == (0, 0)
    await setup.cache.close()


def test_a_packed_answer_is_what_the_cache_gives() -> None:
    answer = Answer(b"k", b"o", (Tensor("y", "UINT8", (1,), b"1"),), {"p": 2}, 1)
    assert answer.pack() == pack_response(answer.outputs, answer.parameters)
