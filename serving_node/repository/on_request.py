"""Loads models when somebody asks something of them, and unloads the longest unused ones when memory is short.

Off by default; stand-alone nodes in explicit mode only. Ordinary requests never come here: only those for a model that
does not serve. They wait, within bounds, for one load of their model.

Concurrency: everything runs on the event loop; disk and engines are used in threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.parameters import parameter
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.repository.eviction import FailedLoads, Held, models_to_unload, with_callers
from serving_node.repository.local import PollError
from serving_node.repository.polled import PolledModel
from serving_node.repository.repository import ModelRepository
from serving_node.repository.version_policy import select_versions
from serving_node.scheduling.served_model import ServedModel

log = structlog.get_logger(__name__)

Then = Callable[[InferenceError | None], None]

_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class OnRequestLimits:
    """``budget_bytes``: how much memory all models may take, 0 for any. ``wait_seconds``: how long a request waits for
    its model. ``most_waiting``: how many requests may wait for models at once.
    """

    budget_bytes: int = 0
    wait_seconds: float = 60.0
    most_waiting: int = 1000


@dataclass(eq=False, slots=True)
class _Waiter:
    """Somebody who waits for a model; ``timer`` is None when that is over."""

    then: Then
    timer: asyncio.TimerHandle | None = None


class OnRequestModels:
    """The models of a repository that are loaded on their first request."""

    def __init__(
        self, repository: ModelRepository, limits: OnRequestLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._repository = repository
        self._limits = limits
        self._clock = clock
        self._failed = FailedLoads()
        self._waiting: dict[str, dict[_Waiter, None]] = {}
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        # what their files weigh, when they were loaded, and what is being loaded now; by name
        self._sizes: dict[str, int] = {}
        self._loaded_ms: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many requests wait for models."""
        return self._count

    def take(self, request: InferenceRequest, submit: Callable[[InferenceRequest], None]) -> bool:
        """Keep a request whose model does not serve, and ``submit`` it when it does; False when that would not help.

        It is answered with an error when too many wait, or when the last load failed a short while ago.
        """
        if request.unit:
            return False

        def answer(error: InferenceError) -> None:
            request.on_response(
                InferenceResponse(request.model_name, request.model_version, request.id, error=error, final=True)
            )

        def go_on(error: InferenceError | None) -> None:
            request.on_cancel = None
            if error is None:
                try:
                    submit(request)
                except InferenceError as refusal:
                    error = refusal
            if error is not None:
                answer(error)

        seconds = self._limits.wait_seconds
        if request.deadline_ns:
            seconds = min(seconds, max(request.deadline_ns - time.monotonic_ns(), 0) / 1e9)
        leave = self.wait(request.model_name, go_on, seconds)
        if leave is None:
            return False

        def cancel(_: InferenceRequest) -> None:
            leave()
            # answered later: the caller of cancel() does not expect its callback to run inside
            asyncio.get_running_loop().call_soon(answer, InferenceError(ErrorCode.CANCELLED, ""))

        request.on_cancel = cancel
        return True

    def wait(self, name: str, then: Then, seconds: float | None = None) -> Callable[[], None] | None:
        """Load a model that does not serve; call ``then`` with None when it does, or with why it does not.

        Returns what ends the waiting; None when it would not help, because the model serves or the node stops. ``then``
        is never called before this returns.
        """
        if self._closed or self._repository.table.serves(name):
            return None
        loop = asyncio.get_running_loop()
        error = self._failed.refusal(name, self._clock())
        if error is None and self._count >= self._limits.most_waiting:
            text = f"model '{name}' is not loaded, and too many requests wait for models to be loaded"
            error = InferenceError(ErrorCode.UNAVAILABLE, text)
        if error is not None:
            return loop.call_soon(_tell, _Waiter(then), error).cancel
        waiters = self._waiting.get(name)
        if waiters is None:
            waiters = self._waiting[name] = {}
            task = asyncio.ensure_future(self._load(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiter = _Waiter(then)
        waiters[waiter] = None
        self._count += 1
        seconds = self._limits.wait_seconds if seconds is None else seconds
        waiter.timer = loop.call_later(seconds, self._expire, name, waiter, seconds)

        def leave() -> None:
            self._leave(name, waiter)

        return leave

    async def settle(self, name: str) -> None:
        """Make room after a model was loaded by an order: others leave, not this one."""
        if self._limits.budget_bytes:
            self._loaded_ms[name] = _now_ms()
            await self._fit(lambda: 0, keep=name)

    def close(self) -> None:
        """Load nothing any more; who waits is told so."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for name in list(self._waiting):
            text = f"model '{name}' is not loaded any more: the server is stopping"
            self._finish(name, InferenceError(ErrorCode.UNAVAILABLE, text))

    # -- who waits

    def _leave(self, name: str, waiter: _Waiter) -> bool:
        """Take somebody off the list; False when that is done already."""
        if waiter.timer is None:
            return False
        waiter.timer.cancel()
        waiter.timer = None
        self._count -= 1
        self._waiting.get(name, {}).pop(waiter, None)
        return True

    def _expire(self, name: str, waiter: _Waiter, seconds: float) -> None:
        if self._leave(name, waiter):
            text = f"model '{name}' was not loaded within {seconds:g} seconds"
            _tell(waiter, InferenceError(ErrorCode.UNAVAILABLE, text))

    def _finish(self, name: str, error: InferenceError | None) -> None:
        """Tell all who wait for a model how it ended."""
        for waiter in list(self._waiting.get(name, ())):
            if self._leave(name, waiter):
                _tell(waiter, error)
        self._waiting.pop(name, None)

    # -- loading

    async def _load(self, name: str) -> None:
        error = None
        try:
            await self._bring(name)
        except InferenceError as refusal:
            error = refusal
        except Exception as problem:
            log.exception("on_request.load_crashed", model=name)
            error = InferenceError(ErrorCode.INTERNAL, f"unexpected {type(problem).__name__} while loading '{name}'")
        if error is None:
            self._failed.forget(name)
        else:
            self._failed.note(name, error, self._clock())
            log.warning("on_request.load_failed", model=name, reason=error.message.strip())
        self._finish(name, error)
        if error is None:
            # its models, when it is an ensemble, came with it
            await self.settle(name)

    async def _bring(self, name: str) -> None:
        """Load a model, after room was made for it. Raises InferenceError."""
        polled = await self._look(name)
        if polled is None:
            raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        size = await asyncio.to_thread(_size, polled)
        self._sizes[name] = size
        self._check_size(name, size)
        if not self._repository.table.serves(name):
            await self._fit(lambda: self._reserve(name, size))
        try:
            await self._repository.load_any_time(name, None, {})
        finally:
            self._coming.pop(name, None)
        self._loaded_ms[name] = _now_ms()
        if self._limits.budget_bytes and (served := self._repository.table.versions(name)):
            try:
                self._check_size(name, self._size_of(name, served))
            except InferenceError:
                await self._repository.evict(name, lambda: True)
                raise

    def _check_size(self, name: str, size: int) -> None:
        budget = self._limits.budget_bytes
        if budget and size > budget:
            text = f"model '{name}' takes {size} bytes, more than the {budget} that all models together may take"
            raise InferenceError(ErrorCode.UNAVAILABLE, text)

    def _reserve(self, name: str, size: int) -> int:
        """Return how much is missing for a model; its room is its own when nothing is.

        Raises:
            InferenceError: nobody waits for it any more.
        """
        if not self._waiting.get(name):
            raise InferenceError(ErrorCode.UNAVAILABLE, f"model '{name}' found no room: all models are in use")
        missing = self._excess() + size
        if missing <= 0:
            self._coming[name] = size
        return missing

    async def _fit(self, missing: Callable[[], int], keep: str = "") -> None:
        """Unload what was not used for the longest time until nothing is missing. ``keep`` stays, with what it calls.

        ``missing`` returns bytes: see ``_reserve``. Without a name to keep it waits for models to be idle.
        """
        if not self._limits.budget_bytes:
            return
        await self._weigh_all()
        while True:
            needed = missing() if not keep else self._excess()
            if needed <= 0:
                return
            leaving = models_to_unload(self._held(keep), needed)
            if leaving is None and keep:
                log.warning("on_request.over_budget", model=keep, bytes=needed)
                return
            if leaving is None:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            for name in leaving:
                log.info("on_request.unloading", model=name)
                await self._repository.evict(name, partial(self._may_leave, name, keep))

    # -- what is there

    async def _look(self, name: str) -> PolledModel | None:
        try:
            return await self._repository.look(name)
        except PollError as error:
            log.error("model.poll_failed", model=name, reason=str(error))
            text = f"failed to load '{name}', failed to poll from model repository"
            raise InferenceError(ErrorCode.INTERNAL, text) from error

    async def _weigh_all(self) -> None:
        """Weigh the files of models that were loaded by an order and whose backend does not know their size."""
        for name in {served.name for served in self._repository.models() if not served.memory_bytes}:
            if name not in self._sizes:
                try:
                    polled = await self._look(name)
                except InferenceError:
                    polled = None
                self._sizes[name] = 0 if polled is None else await asyncio.to_thread(_size, polled)

    def _excess(self) -> int:
        """Return by how much the models exceed the budget; negative when there is room."""
        sizes = self._coming | {one.name: one.size_bytes for one in self._held()}
        return sum(sizes.values()) - self._limits.budget_bytes

    def _held(self, keep: str = "") -> list[Held]:
        by_name: dict[str, list[ServedModel]] = {}
        for served in self._repository.models():
            by_name.setdefault(served.name, []).append(served)
        now_ms = _now_ms()
        return with_callers(self._one(name, served, now_ms, keep) for name, served in by_name.items())

    def _one(self, name: str, served: Sequence[ServedModel], now_ms: int, keep: str) -> Held:
        used_ms = max(self._loaded_ms.get(name, 0), *(one.statistics.last_inference_ms for one in served))
        # between two requests of a sequence its state is in the model
        idle_us = max(one.config.sequence_batching.max_sequence_idle_microseconds for one in served)
        stays = (
            name == keep
            or bool(self._waiting.get(name))
            or any(one.scheduler.inflight_count() for one in served)
            or any(_is_kept(one.config) for one in served)
            or (now_ms - used_ms) * 1000 < idle_us
        )
        calls = frozenset(step.model_name for one in served for step in one.config.ensemble_scheduling.step)
        return Held(name, self._size_of(name, served), used_ms, stays, calls)

    def _may_leave(self, name: str, keep: str) -> bool:
        return any(one.name == name and not one.stays for one in self._held(keep))

    def _size_of(self, name: str, served: Sequence[ServedModel]) -> int:
        declared = max((_declared_size(one.config) for one in served), default=0)
        return declared or sum(one.memory_bytes for one in served) or self._sizes.get(name, 0)


def _tell(waiter: _Waiter, error: InferenceError | None) -> None:
    try:
        waiter.then(error)
    except Exception:
        # one frontend's bug must not leave the others who wait without an answer
        log.exception("on_request.then_failed")


def _size(polled: PolledModel) -> int:
    """Return how many bytes a model will take: what its config says, else the size of its files. Blocks."""
    versions = select_versions(polled.config.version_policy, polled.folder.versions)
    files = (file for version in versions for file in (polled.folder.path / str(version)).rglob("*") if file.is_file())
    return _declared_size(polled.config) or sum(file.stat().st_size for file in files)


def _declared_size(config: ModelConfig) -> int:
    try:
        value = parameter(config, "flotilla.memory_bytes")
    except ContractError:
        return 0  # loading says what is wrong with it
    return value if isinstance(value, int) else 0


def _is_kept(config: ModelConfig) -> bool:
    try:
        return parameter(config, "flotilla.keep_loaded") is True
    except ContractError:
        return False


def _now_ms() -> int:
    """The clock of the statistics, which say when a model was used last."""
    return int(time.time() * 1000)
