"""The shell around the planner: takes desired states in, drives the steps, says what is observed.

Everything the node needs to come back is in its state folder: ``desired.json`` (the last desired state),
``applied.json`` (the routes in force with their units: they may be older than the desired ones when a replacement
failed), the blobs. The control plane is needed only for blobs that are not here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from serving_node.contract.code_formats import code_parts
from serving_node.contract.control import Desired, DesiredModel, Observed, Reason
from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.states import ModelState, UnitState
from serving_node.core.errors import CodeRefusedError, InferenceError
from serving_node.core.metadata import IndexEntry
from serving_node.core.request import InferenceRequest
from serving_node.repository import convergence
from serving_node.repository.convergence import UnitKey
from serving_node.repository.desired_rules import check_desired, check_succession, desired_digest
from serving_node.repository.loading import Loader, LoadOrder
from serving_node.repository.routes import RouteTable
from serving_node.repository.serving_table import ServingTable
from serving_node.repository.state_files import read_json, write_json
from serving_node.repository.unit_record import UnitRecord
from serving_node.repository.unit_steps import StepError, UnitSteps
from serving_node.scheduling.served_model import ServedModel

log = structlog.get_logger(__name__)

_UNLOAD_DRAIN_SECONDS = 60.0
# Code whose permission was taken back gets no longer for the requests that it has.
_WITHDRAWN_DRAIN_SECONDS = 2.0
_PROGRESS_SECONDS = 0.5
_DRAIN_POLL_SECONDS = 0.05
_WRITE_AGAIN_SECONDS = 5.0
_INDEX_STATES = {
    UnitState.READY: ModelState.READY,
    UnitState.LOADING: ModelState.LOADING,
    UnitState.WARMING: ModelState.LOADING,
    UnitState.UNLOADING: ModelState.UNLOADING,
}


class DesiredState:
    """The wanted state of a joined node and its way there. Also the node's model repository for the dataplane.

    Concurrency: all methods run on the event loop; steps that block run in threads of their own.
    """

    def __init__(
        self,
        state_dir: Path,
        steps: UnitSteps,
        loader: Loader,
        *,
        node: Callable[[], str],
        inventory: dict[str, Any] | None = None,
        limits: convergence.Limits | None = None,
        build_log: Callable[[Path], str] = lambda _: "",
    ) -> None:
        self.table = ServingTable(routed=True)
        self._state_dir = state_dir
        self._steps = steps
        self._loader = loader
        self._build_log = build_log
        self._node = node
        self._inventory = inventory or {}
        self._limits = limits or convergence.Limits()
        self._desired: Desired | None = None
        self._applied: dict[str, DesiredModel] = {}
        self._units: dict[UnitKey, UnitRecord] = {}
        self._drained = False
        self._drain_task: asyncio.Task[None] | None = None
        self._generation_applied = 0
        self._is_catching_up = False
        self._unwritten_routes = 0
        # Wall-clock milliseconds, so that the sequence also grows over restarts.
        self._sequence = int(time.time() * 1000)
        self._changed = asyncio.Event()
        self._started_at = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._progress_timer: asyncio.TimerHandle | None = None
        self._write_lock = asyncio.Lock()
        self._threads = ThreadPoolExecutor(self._limits.fetches + 2, thread_name_prefix="unit-step")
        self._stopping = False

    # -- the dataplane's repository

    def resolve(self, name: str, version: str, request: InferenceRequest | None) -> ServedModel:
        """Return the unit that answers. See ``ServingTable.resolve``."""
        return self.table.resolve(name, version, request)

    def sole(self, name: str, version: str) -> ServedModel | None:
        """Return the unit that answers whatever the request is. See ``ServingTable.sole``."""
        return self.table.sole(name, version)

    def models(self) -> Iterator[ServedModel]:
        """Yield every ready unit."""
        return self.table.models()

    def ready(self) -> bool:
        """Tell whether every model that has routes answers. A node without models is ready; a draining one is not.

        After a restart also every desired model must answer, or have failed, once: a load balancer must not send
        requests to a node that has just come back with nothing loaded.
        """
        return not self.table.draining and not self._is_catching_up and self._serves_all(self._applied.values())

    def index(self) -> list[IndexEntry]:
        """Return one row for each version on this node."""
        return self.table.index()

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Refuse: the control plane decides. Raises InferenceError UNAVAILABLE."""
        raise _refused()

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Refuse: the control plane decides. Raises InferenceError UNAVAILABLE."""
        raise _refused()

    # -- the admin frontend's side

    async def restore(self) -> None:
        """Take up what an earlier process of this node was doing. Returns when it has begun."""
        documents = await asyncio.to_thread(
            lambda: [read_json(self._state_dir / name) for name in ("desired.json", "applied.json")]
        )
        try:
            desired = Desired.from_json(documents[0]) if documents[0] else None
            applied = [DesiredModel.from_json(item) for item in documents[1] or []]
            if desired is not None:
                check_desired(desired)
        except ContractError as error:
            log.error("desired_state.unreadable", reason=error.message)
            desired, applied = None, []
        self._desired = desired
        self._is_catching_up = desired is not None
        for model in applied if desired is not None else ():
            self._applied[model.name] = model
            self.table.set_routes(model.name, RouteTable(model.routes, model.sticky))
        wanted = convergence.wanted_units(desired, self._applied).values() if desired is not None else ()
        digests = {file.sha256 for unit in wanted for file in unit.files}
        await asyncio.to_thread(self._steps.clear, digests)
        self._converge()

    async def accept(self, desired: Desired) -> Observed:
        """Store a desired state, begin to follow it and return what is observed now.

        Raises:
            ContractError: it contradicts itself.
            DesiredConflictError: it may not follow the one in force.
        """
        check_desired(desired)
        async with self._write_lock:
            if check_succession(self._desired, desired):
                await asyncio.to_thread(write_json, self._state_dir / "desired.json", desired.to_json())
                self._adopt(desired)
        return self.observed()

    def observed(self) -> Observed:
        """Return what the node says about itself now."""
        desired = self._desired
        return Observed(
            node=self._node(),
            epoch=desired.epoch if desired else 0,
            generation_seen=desired.generation if desired else 0,
            generation_applied=self._generation_applied,
            sequence=self._sequence,
            desired_digest=desired_digest(desired) if desired else "",
            models=tuple(
                record.observed(0 if self.table.draining else self.table.weight(*key))
                for key, record in sorted(self._units.items())
            ),
            inventory=self._inventory,
            uptime_seconds=round(time.monotonic() - self._started_at, 3),
            draining=self.table.draining,
        )

    async def wait_observed(self, after: int, timeout_seconds: float) -> Observed:
        """Return what is observed once its sequence differs from ``after``, or when the time is over."""
        if self._sequence == after and not self._stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_seconds)
        return self.observed()

    def wake_waiters(self) -> None:
        """Answer every long poll now and from now on at once: the node is about to stop."""
        self._stopping = True
        self._note_change()

    async def close(self, timeout_seconds: float) -> None:
        """Stop all steps, drain and close every unit within the time."""
        self.wake_waiters()
        for timer in (self._timer, self._progress_timer):
            if timer is not None:
                timer.cancel()
        for record in self._units.values():
            record.cancelled.set()
        deadline = time.monotonic() + timeout_seconds
        if self._drain_task is not None:
            self._drain_task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)
        left = max(deadline - time.monotonic(), 0.1)
        served = [record.served for record in self._units.values() if record.served is not None]
        await asyncio.gather(*(one.close(left) for one in served), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- convergence

    def _adopt(self, desired: Desired) -> None:
        self._desired = desired
        for record in self._units.values():
            record.reset()
        log.info("desired_state.accepted", epoch=desired.epoch, generation=desired.generation)
        self._note_change()
        self._converge()

    def _serves_all(self, models: Iterable[DesiredModel]) -> bool:
        return all(self.table.serves(model.name) or not RouteTable(model.routes).weighted_units for model in models)

    def _facts(self) -> convergence.NodeFacts:
        units = {key: record.facts() for key, record in self._units.items()}
        return convergence.NodeFacts(units, self._applied, self.table.draining, self._drained)

    def _converge(self) -> None:
        """Plan and start what is to be done now. Called after every change of a fact."""
        if self._desired is None or self._stopping:
            return
        rerouted = True
        while rerouted:
            rerouted = False
            for action in convergence.plan(self._desired, self._facts(), time.monotonic(), self._limits):
                # What a route needed may be retired only after it has changed: plan again at once.
                rerouted |= self._start(action)
        self._pin()
        is_settled = convergence.is_settled(self._desired, self._facts())
        if self._is_catching_up and (is_settled or self._serves_all(self._desired.models)):
            self._is_catching_up = False
        # Applied means: also after a kill -9.
        if is_settled and not self._unwritten_routes:
            if self._generation_applied != self._desired.generation:
                self._generation_applied = self._desired.generation
                log.info("desired_state.applied", generation=self._generation_applied)
                self._note_change()
        else:
            self._generation_applied = min(self._generation_applied, self._desired.generation - 1)
        self._schedule_retry()

    def _start(self, action: convergence.Action) -> bool:
        """Carry out one action, or begin to; tell whether routes or draining changed."""
        match action:
            case convergence.ApplyRoutes(model):
                self._applied[model.name] = model
                self.table.set_routes(model.name, RouteTable(model.routes, model.sticky))
                self._routes_changed()
                return True
            case convergence.RemoveRoutes(name):
                self._applied.pop(name, None)
                self.table.remove_routes(name)
                self._routes_changed()
                return True
            case convergence.StartDrain(deadline_seconds):
                self.table.draining, self._drained = True, False
                self._drain_task = self._spawn(self._drain(deadline_seconds))
                self._note_change()
                return True
            case convergence.StopDrain():
                if self._drain_task is not None:
                    self._drain_task.cancel()
                self.table.draining = self._drained = False
                self._note_change()
                return True
            case convergence.Cancel(name, unit_id):
                self._units[name, unit_id].cancelled.set()
            case convergence.Unload(name, unit_id, keep_staged, at_once):
                seconds = _WITHDRAWN_DRAIN_SECONDS if at_once else _UNLOAD_DRAIN_SECONDS
                self._begin(self._units[name, unit_id], UnitState.UNLOADING, self._unload, keep_staged, seconds)
            case convergence.Fetch(name, unit):
                record = self._units.setdefault((name, unit.unit), UnitRecord(name, unit))
                record.unit = unit
                self._begin(record, UnitState.FETCHING, self._fetch)
            case convergence.Verify(name, unit):
                self._begin(self._units[name, unit.unit], UnitState.VERIFYING, self._verify)
            case convergence.Stage(name, unit):
                self._begin(self._units[name, unit.unit], UnitState.STAGED, self._stage)
            case convergence.Load(name, unit):
                record = self._units[name, unit.unit]
                record.unit = unit  # what it may do can have changed since it was staged
                self._begin(record, UnitState.LOADING, self._load)
        return False

    def _begin(
        self, record: UnitRecord, state: UnitState, step: Callable[..., Coroutine[Any, Any, None]], *more: Any
    ) -> None:
        record.begin(state)
        self._changed_unit(record)
        self._spawn(self._run(record, step(record, *more)))

    async def _run(self, record: UnitRecord, step: Coroutine[Any, Any, None]) -> None:
        """Await one step; keep the reason when it fails; plan again."""
        try:
            await step
        except StepError as error:
            record.fail(Reason(error.code, error.message), time.monotonic(), transient=error.transient)
        except CodeRefusedError as error:
            record.fail(Reason("code_not_permitted", error.message), time.monotonic(), transient=False)
        except InferenceError as error:
            record.fail(Reason("load_failed", error.message), time.monotonic(), transient=False)
        except Exception as error:
            log.exception("unit.step_crashed", model=record.name, unit=record.unit.unit)
            reason = Reason("internal", f"unexpected {type(error).__name__} in step {record.state.value}")
            record.fail(reason, time.monotonic(), transient=False)
        if record.state is UnitState.FAILED and record.reason is not None and not record.cancelled.is_set():
            log.error(
                "unit.failed",
                model=record.name,
                unit=record.unit.unit,
                code=record.reason.code,
                reason=record.reason.text,
            )
        self._changed_unit(record)
        self._converge()

    # -- steps: each ends with ``record.end`` or raises

    async def _fetch(self, record: UnitRecord) -> None:
        def report(done: int) -> None:
            record.bytes_done = done

        self._watch_progress()
        await self._in_thread(self._steps.fetch, record.unit, report, record.cancelled)
        record.end(UnitState.FETCHING)

    async def _verify(self, record: UnitRecord) -> None:
        await self._in_thread(self._steps.verify, record.unit)
        record.end(UnitState.VERIFYING)

    async def _stage(self, record: UnitRecord) -> None:
        await self._in_thread(self._steps.stage, record.name, record.unit)
        record.end(UnitState.STAGED)

    async def _load(self, record: UnitRecord) -> None:
        def warming() -> None:
            record.state = UnitState.WARMING
            self._changed_unit(record)

        unit = record.unit
        config = self._steps.config(record.name, unit)
        record.runs_code = bool(code_parts((file.path for file in unit.files), config))
        folder = self._steps.folder(record.name, unit)
        begun = time.monotonic()
        # Counters are told by version: when another config of it takes over, they must go on and not fall.
        others = [other for other in self.table.versions(record.name) if other.version == unit.version]
        statistics = others[0].statistics if others else None
        order = LoadOrder(
            record.name, unit.version, folder, config, unit.unit, warming, statistics, unit.code_permitted
        )
        try:
            record.served = await self._loader(order)
        finally:
            record.build_log = self._build_log(folder)
        record.load_seconds = round(time.monotonic() - begun, 3)
        if self._stopping:
            return
        record.end(UnitState.READY)
        self.table.put(record.served)
        log.info("unit.ready", model=record.name, unit=unit.unit, seconds=record.load_seconds)

    async def _unload(self, record: UnitRecord, keep_staged: bool, drain_seconds: float) -> None:
        served, record.served = record.served, None
        self.table.take(record.name, record.unit.unit)
        if served is not None:
            await served.drain(drain_seconds)
            await served.close()
        if keep_staged:
            record.end(UnitState.STAGED)
            return
        await self._in_thread(self._steps.unstage, record.name, record.unit.unit)
        record.end(UnitState.ABSENT)
        del self._units[record.name, record.unit.unit]
        self.table.forget(record.name, record.unit.unit)

    async def _drain(self, deadline_seconds: float) -> None:
        deadline = time.monotonic() + deadline_seconds
        # Polled: counting what ends would cost every request, and a drain is rare.
        while time.monotonic() < deadline and any(  # noqa: ASYNC110
            m.scheduler.inflight_count() for m in self.table.models()
        ):
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        self._drained = True
        log.info("node.drained")
        self._note_change()
        self._converge()

    # -- bookkeeping

    def _routes_changed(self) -> None:
        self._note_change()
        self._unwritten_routes += 1
        self._spawn(self._write_applied())

    async def _write_applied(self) -> None:
        async with self._write_lock:
            covered = self._unwritten_routes
            if not covered:
                return
            document = [model.to_json() for model in self._applied.values()]
            try:
                await asyncio.to_thread(write_json, self._state_dir / "applied.json", document)
            except OSError as error:
                log.error("desired_state.not_written", file="applied.json", reason=str(error))
                asyncio.get_running_loop().call_later(_WRITE_AGAIN_SECONDS, self._write_again)
                return
            self._unwritten_routes -= covered
        self._converge()

    def _write_again(self) -> None:
        if not self._stopping:
            self._spawn(self._write_applied())

    def _changed_unit(self, record: UnitRecord) -> None:
        if (record.name, record.unit.unit) in self._units and record.state is not UnitState.READY:
            state = _INDEX_STATES.get(record.state, ModelState.UNAVAILABLE)
            reason = record.reason.text if record.reason else ""
            self.table.note(record.name, record.unit.unit, record.unit.version, state, reason)
        self._note_change()

    def _note_change(self) -> None:
        self._sequence += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _pin(self) -> None:
        """Tell the store which blobs must stay: those of every unit that is here or wanted."""
        assert self._desired is not None
        units = [record.unit for record in self._units.values()]
        units.extend(convergence.wanted_units(self._desired, self._applied).values())
        self._steps.store.pin({file.sha256 for unit in units for file in unit.files})

    def _schedule_retry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [record.retry_at for record in self._units.values() if record.retry_at is not None]
        if due:
            # A little late rather than early: an early look would plan nothing and wait again.
            pause = max(min(due) - time.monotonic(), 0.0) + 0.01
            self._timer = asyncio.get_running_loop().call_later(pause, self._converge)

    def _watch_progress(self) -> None:
        """Let observers see the bytes of running fetches, a few times a second at most."""
        if self._progress_timer is None:
            loop = asyncio.get_running_loop()
            self._progress_timer = loop.call_later(_PROGRESS_SECONDS, self._report_progress)

    def _report_progress(self) -> None:
        self._progress_timer = None
        if any(record.busy and record.state is UnitState.FETCHING for record in self._units.values()):
            self._note_change()
            self._watch_progress()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*arguments))


def _refused() -> InferenceError:
    return InferenceError(ErrorCode.UNAVAILABLE, "this node follows its control plane: load and unload models there")
