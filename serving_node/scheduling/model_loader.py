"""From a version's folder and its config to a model that answers. Everything that blocks runs off the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import (
    check_signature,
    complete,
    normalise,
    validate,
    validate_before_opening,
)
from serving_node.contract.model_config.autocomplete_python import complete_from_model
from serving_node.contract.model_config.completion import DEFAULT_MAX_BATCH_SIZE
from serving_node.contract.model_config.scheduling_rules import batch_library_sentence
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.backend import (
    Backend,
    BackendInstance,
    BackendModel,
    BackendRegistry,
    Device,
    LoopInstance,
    ModelSource,
    SelfDescribing,
    StartsProcesses,
)
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls, ModelCalls
from serving_node.core.metadata import OutputClasses
from serving_node.observability.statistics import ModelStatistics
from serving_node.scheduling.adaptive_delay import delay_target
from serving_node.scheduling.adaptive_scheduler import AdaptiveScheduler
from serving_node.scheduling.code_rules import chosen_host
from serving_node.scheduling.ensemble_loader import load_ensemble
from serving_node.scheduling.host_policies import HostPolicies
from serving_node.scheduling.instances import InstanceThread, LoopRunner
from serving_node.scheduling.io_rules import IoRules
from serving_node.scheduling.labels import read_classes
from serving_node.scheduling.padding import padding
from serving_node.scheduling.policy import batch_policy
from serving_node.scheduling.reshaping import reshaping
from serving_node.scheduling.resizing import Placement, Resizer, Runner, placements
from serving_node.scheduling.scheduler import Scheduler
from serving_node.scheduling.sequence_policy import sequence_policy
from serving_node.scheduling.sequence_rows import SequenceRows
from serving_node.scheduling.sequences import SequenceScheduler
from serving_node.scheduling.served_model import ServedModel
from serving_node.scheduling.shape_rules import io_rules
from serving_node.scheduling.turns import Turns
from serving_node.scheduling.warmup import warm_up

if TYPE_CHECKING:
    from serving_node.contract.signature import ModelSignature

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Opened:
    """What opening found, before the scheduler starts."""

    config: ModelConfig
    signature: ModelSignature | None
    rules: IoRules
    model: BackendModel
    instances: list[tuple[Placement, BackendInstance | LoopInstance]]
    memory_bytes: int
    classes: OutputClasses
    sequences: SequenceRows | None = None

    def close(self) -> None:
        """Free everything; used when a later step fails."""
        for _, instance in self.instances:
            instance.close()
        self.model.close()


async def load_served_model(
    *,
    name: str,
    version: int,
    version_dir: Path,
    config: ModelConfig,
    backends: BackendRegistry,
    calls: ModelCalls | None = None,
    gpu_count: int = 0,
    hosts: HostPolicies | None = None,
    turns: Turns | None = None,
    unit: str = "",
    auto_complete: bool = True,
    code_permitted: bool = True,
    on_warming: Callable[[], None] | None = None,
    statistics: ModelStatistics | None = None,
    new_statistics: Callable[[ModelConfig], ModelStatistics] | None = None,
) -> ServedModel:
    """Return the version, completed, validated, warmed up and ready.

    ``config`` has its backend; it is not changed. ``on_warming`` is called on the loop when warm-up begins.
    ``hosts`` are the policies that instance groups name; ``turns`` is the rate limiter of the node, if it has one.
    ``code_permitted``: whether a version that is code may be loaded.
    ``statistics`` are those of another unit of the same version that the new one goes on counting in; without them
    ``new_statistics`` makes some for the completed config.

    Raises:
        InferenceError: with one sentence why the version cannot be served. Nothing is left behind.
    """
    started = time.monotonic()
    source = ModelConfig()
    source.CopyFrom(config)
    source.name = source.name or name
    if source.HasField("ensemble_scheduling"):
        return await load_ensemble(
            source,
            calls or InnerCalls(),
            name=name,
            version=version,
            folder=version_dir.parent,
            unit=unit,
            statistics=statistics,
            new_statistics=new_statistics,
        )
    loader = _Loader(
        name,
        version,
        version_dir,
        source,
        backends,
        gpu_count,
        auto_complete,
        hosts or HostPolicies(),
        turns,
        code_permitted,
    )
    preparing = asyncio.ensure_future(_prepare(loader, on_warming))
    try:
        opened = await asyncio.shield(preparing)
        runners = await _admitted(opened, turns)
    except asyncio.CancelledError:
        preparing.add_done_callback(_close_abandoned)
        raise
    except InferenceError as error:
        log.warning("model.load_failed", model=name, version=version, unit=unit, reason=error.message)
        raise
    load_seconds = time.monotonic() - started
    log.info("model.loaded", model=name, version=version, unit=unit, seconds=round(load_seconds, 3))
    if statistics is None:
        statistics = new_statistics(opened.config) if new_statistics is not None else ModelStatistics()
    return _served(opened, runners, loader, version, unit, load_seconds, statistics)


async def _admitted(opened: _Opened, turns: Turns | None) -> list[Runner]:
    """Return what will run the instances, known to the rate limiter. Raises InferenceError, and then all is closed."""
    runners = [_runner(placement, instance) for placement, instance in opened.instances]
    if turns is not None:
        try:
            turns.add({runner: one.share for runner, (one, _) in zip(runners, opened.instances, strict=True)})
        except InferenceError:
            await asyncio.to_thread(opened.close)
            raise
    return runners


def _served(
    opened: _Opened,
    runners: list[Runner],
    loader: _Loader,
    version: int,
    unit: str,
    load_seconds: float,
    statistics: ModelStatistics,
) -> ServedModel:
    """Start the scheduler of a warm model. On the loop."""
    name = loader.name
    scheduler = _scheduler(opened, runners, loader, version, statistics)
    served = ServedModel(
        name=name,
        version=version,
        unit=unit,
        config=opened.config,
        signature=opened.signature,
        metadata=opened.rules.metadata(opened.config),
        rules=opened.rules,
        scheduler=scheduler,
        statistics=statistics,
        max_batch_size=opened.config.max_batch_size,
        load_seconds=load_seconds,
        memory_bytes=opened.memory_bytes,
        decoupled=opened.config.model_transaction_policy.decoupled,
        classes=opened.classes,
    )
    if isinstance(scheduler, SequenceScheduler):
        return served  # its sequences stay with their instances: another number of those is another load
    served.resize = Resizer(
        model=opened.model,
        rules=opened.rules,
        folder=loader.folder,
        gpu_count=loader.gpu_count,
        scheduler=scheduler,
        runners=runners,
        runner=_runner,
        served=served,
        hosts=loader.hosts,
        turns=loader.turns,
    ).resize
    return served


def _scheduler(
    opened: _Opened, runners: list[Runner], loader: _Loader, version: int, statistics: ModelStatistics
) -> Scheduler:
    sequences = sequence_policy(opened.config)
    if sequences is not None and opened.sequences is not None:
        return SequenceScheduler(
            name=loader.name,
            version=version,
            policy=sequences,
            rows=opened.sequences,
            instances=runners,
            statistics=statistics,
            on_closed=opened.model.close,
            turns=loader.turns,
        )
    policy = batch_policy(opened.config)
    statistics.adaptive_delay = None  # that of the unit before, whose counters these are
    target = delay_target(opened.config) if policy is not None else None
    if policy is not None and target is not None:
        return AdaptiveScheduler(
            name=loader.name,
            version=version,
            policy=policy,
            target=target,
            instances=runners,
            statistics=statistics,
            on_closed=opened.model.close,
            turns=loader.turns,
        )
    return Scheduler(
        name=loader.name,
        version=version,
        policy=policy,
        instances=runners,
        statistics=statistics,
        on_closed=opened.model.close,
        turns=loader.turns,
    )


def _runner(placement: Placement, instance: BackendInstance | LoopInstance) -> Runner:
    if isinstance(instance, LoopInstance):
        return LoopRunner(placement.label, instance)
    return InstanceThread(placement.label, instance, placement.device.host)


async def _prepare(loader: _Loader, on_warming: Callable[[], None] | None) -> _Opened:
    opened = await asyncio.to_thread(loader.open)
    try:
        if on_warming is not None:
            on_warming()
        await asyncio.to_thread(loader.warm, opened)
    except BaseException:
        await asyncio.to_thread(opened.close)
        raise
    return opened


def _close_abandoned(preparing: asyncio.Future[_Opened]) -> None:
    """Free what a cancelled load opened all the same: a thread cannot be stopped."""
    if not preparing.cancelled() and preparing.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, preparing.result().close)


def _instances(
    model: BackendModel, config: ModelConfig, wanted: Sequence[Placement]
) -> list[tuple[Placement, BackendInstance | LoopInstance]]:
    """Make all instances or none. Those that run in processes of their own start at the same time."""

    def make(placement: Placement) -> BackendInstance | LoopInstance:
        with placement.device.host.applied():
            return model.create_instance(placement.device, config, placement.label)

    side_by_side = model.starts_at_once if isinstance(model, StartsProcesses) else 1
    with ThreadPoolExecutor(min(len(wanted), side_by_side)) as pool:
        made = [(placement, pool.submit(make, placement)) for placement in wanted]
    failures = [failure for _, future in made if (failure := future.exception()) is not None]
    if failures:
        for _, future in made:
            if future.exception() is None:
                future.result().close()
        raise failures[0]
    return [(placement, future.result()) for placement, future in made]


class _Loader:
    """The blocking steps of a load."""

    def __init__(
        self,
        name: str,
        version: int,
        version_dir: Path,
        config: ModelConfig,
        backends: BackendRegistry,
        gpu_count: int,
        auto_complete: bool,
        hosts: HostPolicies,
        turns: Turns | None,
        code_permitted: bool,
    ) -> None:
        self.name = name
        self._version = version
        self._version_dir = version_dir
        self.folder = version_dir.parent
        self._config = config
        self._backends = backends
        self.gpu_count = gpu_count
        self._auto_complete = auto_complete
        self.hosts = hosts
        self.turns = turns
        self._code_permitted = code_permitted

    def open(self) -> _Opened:
        """Open the file, complete and check the config, make the instances."""
        host = chosen_host(self._config, self._version_dir, code_permitted=self._code_permitted)
        backend = self._backends.get(self._config.backend, host)
        draft = self._normalised(self._config)
        self._refuse_batch_library(draft)
        devices = [placement.device for placement in placements(draft, self.hosts)]
        if not devices:
            raise InferenceError(ErrorCode.INVALID_ARG, f"model '{self.name}' has no instance to run on")
        model = self._open_model(backend, draft, devices)
        try:
            signature = model.signature()
            config = self._completed(model, signature, draft)
            rules = io_rules(config)
            classes = read_classes(config, self.folder)
            sequences = SequenceRows(config, self.folder) if config.HasField("sequence_batching") else None
            wanted = placements(config, self.hosts)
            instances = [
                (one, padding(reshaping(instance, rules), rules)) for one, instance in _instances(model, config, wanted)
            ]
        except BaseException:
            model.close()
            raise
        return _Opened(config, signature, rules, model, instances, model.memory_bytes(), classes, sequences)

    def warm(self, opened: _Opened) -> None:
        """Warm up every instance."""
        # models of one's own may do anything with a request that nobody sent
        zeros = not isinstance(opened.model, SelfDescribing)
        added = opened.sequences.null if opened.sequences is not None else ()
        for placement, instance in opened.instances:
            warm_up(instance, opened.rules, opened.config, self.folder, name=placement.label, zeros=zeros, added=added)

    def _refuse_batch_library(self, config: ModelConfig) -> None:
        """Refuse a library that forms batches where Triton would find and load one without being told."""
        folders = (self._version_dir, self.folder)
        if config.HasField("dynamic_batching") and any((folder / "batchstrategy.so").exists() for folder in folders):
            raise InferenceError(ErrorCode.UNSUPPORTED, batch_library_sentence(self.name))

    def _open_model(self, backend: Backend, draft: ModelConfig, devices: list[Device]) -> BackendModel:
        source = ModelSource(
            name=self.name,
            version=self._version,
            directory=self._version_dir,
            config=draft,
            devices=tuple(devices),
        )
        try:
            with devices[0].host.applied():  # what opening starts belongs to the first instance
                return backend.open_model(source)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InferenceError(ErrorCode.INVALID_ARG, f"cannot read the files of the model: {reason}") from error

    def _completed(self, model: BackendModel, signature: ModelSignature | None, draft: ModelConfig) -> ModelConfig:
        try:
            config = self._config
            if signature is not None and self._auto_complete:
                config = complete(config, signature, default_max_batch_size=self._default_max_batch_size())
            if self._auto_complete and isinstance(model, SelfDescribing):
                described = model.describe(draft)
                if described is not None:
                    config = complete_from_model(config, described, self.name)
            config = normalise(config, gpu_count=self.gpu_count)
            # a model without inputs or outputs is strange, but only a file can tell that it has some
            validate(config, model_name=self.name, gpu_count=self.gpu_count, require_tensors=signature is not None)
            mismatches = check_signature(config, signature) if signature is not None else []
        except ContractError as error:
            raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error
        if mismatches:
            raise InferenceError(ErrorCode.INVALID_ARG, "; ".join(mismatch.message for mismatch in mismatches))
        return config

    def _default_max_batch_size(self) -> int:
        """Return what completion sets for a model that can be batched, from ``default-max-batch-size`` if given."""
        text = self._backends.options(self._config.backend).get("default-max-batch-size")
        if text is None:
            return DEFAULT_MAX_BATCH_SIZE
        if not text.isdecimal():
            raise InferenceError(
                ErrorCode.INVALID_ARG, f"--backend-config: default-max-batch-size must be a number, not '{text}'"
            )
        return int(text)

    def _normalised(self, config: ModelConfig) -> ModelConfig:
        try:
            draft = normalise(config, gpu_count=self.gpu_count)
            validate_before_opening(draft, gpu_count=self.gpu_count)
            return draft
        except ContractError as error:
            raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error
