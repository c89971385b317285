"""A scheduler with a response cache before it: what was answered lately is answered again without running anything.

Chosen when a model is loaded; a model without a cache never comes here. Only final, successful answers of requests that
have one are kept, and requests of sequences are passed on, because their answers depend on those before. Equal requests
that arrive before the first of them is answered all run: none of them depends on the fate of another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.request import InferenceRequest, InferenceResponse, Timing
from serving_node.observability.statistics import FailureReason, ModelStatistics
from serving_node.scheduling.batch import ReleaseOrder
from serving_node.scheduling.cache_key import private_inputs, request_key
from serving_node.scheduling.cached_response import unpack_response
from serving_node.scheduling.response_cache import INLINE_BYTES, Answer, ResponseCache
from serving_node.scheduling.scheduler import STOPPED

if TYPE_CHECKING:
    from serving_node.core.request import Parameter
    from serving_node.core.tensor import Tensor
    from serving_node.scheduling.served_model import RequestScheduler

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Call:
    """One request on its way. ``respond`` is its own ``on_response``; ``key`` is empty when its answer is not kept.

    ``waits``: it is being looked up. ``is_new``: ``submit`` has not returned yet, and may raise.
    """

    request: InferenceRequest
    respond: Callable[[InferenceResponse], None]
    namespace: bytes | None
    ticket: int
    started_ns: int
    key: bytes = b""
    lookup_ns: int = 0
    waits: bool = True
    is_new: bool = True


class CachedScheduler:
    """Answers from a cache, or has another scheduler answer and keeps that. See ``RequestScheduler``.

    ``namespace`` returns what all keys of this model begin with: it stands for everything but the request that an
    answer depends on, and None when that cannot be said, so that nothing is kept. ``owner`` is this load of the model,
    whose memory is freed at the end.
    ``preserve_ordering``: an answer from the cache leaves after those of earlier requests.
    Concurrency: as ``Scheduler``; everything runs on the event loop but hashing and copying of what is large.
    """

    def __init__(
        self,
        scheduler: RequestScheduler,
        cache: ResponseCache,
        *,
        name: str,
        version: int,
        namespace: Callable[[], bytes | None],
        owner: bytes,
        statistics: ModelStatistics,
        preserve_ordering: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._cache = cache
        self._name = name
        self._version = str(version)
        self._namespace = namespace
        self._owner = owner
        self._statistics = statistics
        self._order: ReleaseOrder[tuple[_Call, InferenceResponse] | None] | None = (
            ReleaseOrder() if preserve_ordering else None
        )
        self._tickets = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: set[_Call] = set()
        self._inflight = 0
        self._stopping = False
        self._closed = False
        self._drained = asyncio.Event()

    def submit(self, request: InferenceRequest) -> None:
        """Answer a validated request from the cache, or queue it. See ``RequestScheduler``."""
        if self._stopping:
            raise request_error(ErrorCode.UNAVAILABLE, request.id, STOPPED)
        if request.cancelled:
            raise InferenceError(ErrorCode.CANCELLED, "")
        started_ns = time.monotonic_ns()
        is_of_sequence = request.sequence_id or request.sequence_start or request.sequence_end
        namespace = None if is_of_sequence else self._namespace()
        is_small = request.lease is None and sum([len(tensor.data) for tensor in request.inputs]) <= INLINE_BYTES
        key = request_key(namespace, request) if namespace is not None and is_small else b""
        call = _Call(request, request.on_response, namespace, self._tickets, started_ns)
        self._tickets += 1
        self._inflight += 1
        if namespace is None:
            call.waits = False
            self._execute(call)
        elif key:
            self._look_up(call, key)
        else:
            hashing = self._loop.run_in_executor(self._cache.threads, _large_key, namespace, request)
            hashing.add_done_callback(partial(self._hashed, call))
        if call.waits:
            request.on_cancel = partial(self._cancel, call)
            self._waiting.add(call)
        call.is_new = False

    def ready(self) -> bool:
        """Return whether requests would be answered, also those that nobody sent before."""
        return not self._stopping and self._scheduler.ready()

    def pending_count(self) -> int:
        """Return how many requests wait for execution, or for the cache to be asked."""
        return self._scheduler.pending_count() + len(self._waiting)

    def inflight_count(self) -> int:
        """Return how many requests are not answered."""
        return self._inflight

    async def drain(self, timeout_seconds: float) -> bool:
        """Take no new requests and wait for those inside. Returns False when the time ran out."""
        self._stopping = True
        deadline = time.monotonic() + timeout_seconds
        if self._inflight:
            try:
                await asyncio.wait_for(self._drained.wait(), timeout_seconds)
            except TimeoutError:
                return False
        return await self._scheduler.drain(max(deadline - time.monotonic(), 0.0))

    async def close(self, timeout_seconds: float = 10.0) -> None:
        """Stop now: answer what waits with UNAVAILABLE, close the scheduler behind, free the memory of the answers."""
        self._stopping = True
        if self._closed:
            return
        self._closed = True
        for call in list(self._waiting):
            self._give_up(call, request_error(ErrorCode.UNAVAILABLE, call.request.id, STOPPED), FailureReason.OTHER)
        await self._scheduler.close(timeout_seconds)
        await self._cache.forget(self._owner)

    # -- looking up

    def _hashed(self, call: _Call, hashing: asyncio.Future[tuple[bytes, list[Tensor]]]) -> None:
        if not call.waits:
            return
        if hashing.cancelled() or hashing.exception() is not None:
            self._found(call, None)
            return
        key, call.request.inputs = hashing.result()
        self._look_up(call, key)

    def _look_up(self, call: _Call, key: bytes) -> None:
        call.key = key
        self._cache.look_up(key, partial(self._found, call))

    def _found(self, call: _Call, raw: bytes | None) -> None:
        if not call.waits:
            return  # cancelled or stopped meanwhile, and answered
        self._end_waiting(call)
        call.lookup_ns = time.monotonic_ns() - call.started_ns
        if raw is not None:
            try:
                outputs, parameters = unpack_response(raw)
            except ValueError:
                log.warning("cache.answer_unreadable", model=self._name, version=self._version)
            else:
                if call.is_new:
                    # later: the caller of submit() does not expect its callback to run inside
                    self._loop.call_soon(self._hit, call, outputs, parameters)
                else:
                    self._hit(call, outputs, parameters)
                return
        self._execute(call)

    def _hit(self, call: _Call, outputs: list[Tensor], parameters: dict[str, Parameter]) -> None:
        request = call.request
        self._statistics.record_cache_hit(request, call.lookup_ns, time.monotonic_ns())
        response = InferenceResponse(self._name, self._version, request.id, outputs, parameters)
        response.timing = Timing(call.lookup_ns)
        if request.trace is not None:
            request.trace.mark("QUEUE_START", call.started_ns)
            request.trace.tensors("TENSOR_QUEUE_INPUT", request.inputs)
        self._release(call, response)
        if request.trace is not None:
            request.trace.end(time.monotonic_ns())

    # -- executing

    def _execute(self, call: _Call) -> None:
        request = call.request
        request.on_response = partial(self._answered, call)
        try:
            self._scheduler.submit(request)
        except Exception as error:
            request.on_response = call.respond
            if call.is_new:
                self._leave(call)
                raise
            if not isinstance(error, InferenceError):
                log.exception("cache.submit_failed", model=self._name, version=self._version)
                error = InferenceError(ErrorCode.INTERNAL, "the request could not be queued")
            self._release(call, InferenceResponse(self._name, self._version, request.id, error=error))
            if request.trace is not None:
                request.trace.end(time.monotonic_ns())

    def _answered(self, call: _Call, response: InferenceResponse) -> None:
        """Keep and pass on an answer of the scheduler behind."""
        if not response.final:
            call.key = b""
            call.respond(response)
            return
        call.request.on_response = call.respond
        # not when a model of an ensemble's step has changed meanwhile: nobody knows which of the two has answered
        if call.key and response.error is None and not response.flag_only and self._namespace() == call.namespace:
            self._keep(call, response)
        self._release(call, response)

    def _keep(self, call: _Call, response: InferenceResponse) -> None:
        outputs = tuple(response.outputs)
        size = sum([len(tensor.data) for tensor in outputs])
        answer = Answer(call.key, self._owner, outputs, dict(response.parameters), size)
        try:
            self._cache.insert(answer, partial(self._kept, call.lookup_ns))
        except Exception:
            # whatever is wrong with keeping it, the request has its answer
            log.exception("cache.insert_failed", model=self._name, version=self._version)

    def _kept(self, lookup_ns: int, insertion_ns: int) -> None:
        self._statistics.record_cache_miss(lookup_ns + insertion_ns, time.monotonic_ns())

    # -- answering

    def _cancel(self, call: _Call, _request: InferenceRequest) -> None:
        if call.waits:
            self._end_waiting(call)
            error = InferenceError(ErrorCode.CANCELLED, "")
            # later: the caller of cancel() does not expect its callback to run inside
            self._loop.call_soon(self._fail, call, error, FailureReason.CANCELED)

    def _give_up(self, call: _Call, error: InferenceError, reason: FailureReason) -> None:
        self._end_waiting(call)
        self._fail(call, error, reason)

    def _end_waiting(self, call: _Call) -> None:
        call.waits = False
        call.request.on_cancel = None
        self._waiting.discard(call)

    def _fail(self, call: _Call, error: InferenceError, reason: FailureReason) -> None:
        request = call.request
        self._statistics.record_failure(reason, time.monotonic_ns() - request.arrival_ns)
        self._release(call, InferenceResponse(self._name, self._version, request.id, error=error))
        if request.trace is not None:
            request.trace.end(time.monotonic_ns())

    def _release(self, call: _Call, response: InferenceResponse) -> None:
        """Respond in turn; a failure at once, for it may be the end of one that others need not wait for."""
        if self._order is None:
            self._respond(call, response)
        elif response.error is not None:
            self._respond(call, response)
            self._pass_turn(call, None)
        else:
            self._pass_turn(call, (call, response))

    def _pass_turn(self, call: _Call, answer: tuple[_Call, InferenceResponse] | None) -> None:
        assert self._order is not None
        for released in self._order.finish(call.ticket, answer):
            if released is not None:
                self._respond(*released)

    def _respond(self, call: _Call, response: InferenceResponse) -> None:
        self._count_out()
        try:
            call.respond(response)
        except Exception:
            # one frontend's bug must not leave others without an answer
            log.exception(
                "scheduler.on_response_failed", model=self._name, version=self._version, request_id=call.request.id
            )

    def _leave(self, call: _Call) -> None:
        """Forget a request that was not taken."""
        self._count_out()
        if self._order is not None:
            self._pass_turn(call, None)

    def _count_out(self) -> None:
        self._inflight -= 1
        if not self._inflight and self._stopping:
            self._drained.set()


def _large_key(namespace: bytes, request: InferenceRequest) -> tuple[bytes, list[Tensor]]:
    """Return the key of a request and the inputs that it was made from. In a thread."""
    if request.lease is None:
        return request_key(namespace, request), request.inputs
    inputs = private_inputs(request)
    return request_key(namespace, request, inputs), inputs
