"""More, fewer or other instances for a model that goes on serving.

Source: Triton's update of a model whose config differs in ``instance_group`` or ``version_policy`` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import normalise, validate
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelInstanceGroup
from serving_node.core.backend import BackendInstance, BackendModel, Device, DeviceKind, LoopInstance, SelfDescribing
from serving_node.core.errors import InferenceError
from serving_node.scheduling.instances import InstanceThread, LoopRunner
from serving_node.scheduling.io_rules import IoRules
from serving_node.scheduling.reshaping import reshaping
from serving_node.scheduling.served_model import ServedModel
from serving_node.scheduling.warmup import warm_up

log = structlog.get_logger(__name__)

Runner = InstanceThread | LoopRunner


@dataclass(frozen=True, slots=True)
class Placement:
    """One instance that a config asks for. Two of the same ``kind`` can stand for each other."""

    label: str
    device: Device
    kind: Hashable


def placements(config: ModelConfig) -> list[Placement]:
    """Return the instances that a normalised config asks for, in order. Passive groups have none."""
    found: list[Placement] = []
    for group in config.instance_group:
        if group.passive:
            continue
        count = max(1, group.count)
        if group.kind == ModelInstanceGroup.KIND_GPU:
            devices = [Device(DeviceKind.GPU, index) for index in group.gpus for _ in range(count)]
        else:
            devices = [Device()] * count
        kind = ModelInstanceGroup()
        kind.CopyFrom(group)
        for field in ("name", "count", "gpus"):
            kind.ClearField(field)
        signature = kind.SerializeToString(deterministic=True)
        found += [Placement(f"{group.name}_{n}", device, (signature, device)) for n, device in enumerate(devices)]
    return found


@dataclass(frozen=True, slots=True)
class Steps:
    """What must be done: positions of instances to end, and those to make."""

    end: tuple[int, ...]
    make: tuple[Placement, ...]


def steps(current: Sequence[Placement], wanted: Sequence[Placement]) -> Steps:
    """Return how to come from one set of instances to another with as few changes as possible; the oldest stay."""
    free = list(wanted)
    end: list[int] = []
    kept: set[str] = set()
    for position, placement in enumerate(current):
        match = next((one for one in free if one.kind == placement.kind), None)
        if match is None:
            end.append(position)
        else:
            free.remove(match)
            kept.add(placement.label)
    # Those that stay keep their names, which those to make must not take.
    labels = [one.label for one in wanted if one.label not in kept]
    labels += [f"{one.label}_new" for one in wanted]
    make = [Placement(label, one.device, one.kind) for label, one in zip(labels, free, strict=False)]
    return Steps(tuple(end), tuple(make))


class InstanceScheduler(Protocol):
    """What is needed of a scheduler."""

    def set_instances(self, added: Sequence[Runner], removed: Sequence[Runner]) -> None:
        """See ``Scheduler.set_instances``."""


class Resizer:
    """The instances of one served model. Used on the loop; one change at a time."""

    def __init__(
        self,
        *,
        model: BackendModel,
        rules: IoRules,
        folder: Path,
        gpu_count: int,
        scheduler: InstanceScheduler,
        runners: Sequence[Runner],
        runner: Callable[[str, BackendInstance | LoopInstance], Runner],
        served: ServedModel,
    ) -> None:
        self._model = model
        self._rules = rules
        self._folder = folder
        self._gpu_count = gpu_count
        self._scheduler = scheduler
        self._runner = runner
        self._served = served
        self._current = list(zip(placements(served.config), runners, strict=True))

    async def resize(self, config: ModelConfig) -> None:
        """See ``ServedModel.resize``."""
        final = self._completed(config)
        plan = steps([placement for placement, _ in self._current], placements(final))
        made = await asyncio.to_thread(self._make, plan.make, final)
        added = [(placement, self._runner(placement.label, instance)) for placement, instance in made]
        removed = [self._current[position][1] for position in plan.end]
        self._scheduler.set_instances([runner for _, runner in added], removed)
        kept = [one for position, one in enumerate(self._current) if position not in plan.end]
        self._current = kept + added
        self._served.config = final
        name = self._served.name
        log.info("model.resized", model=name, version=self._served.version, added=len(added), removed=len(removed))

    def _completed(self, config: ModelConfig) -> ModelConfig:
        try:
            wanted = normalise(config, gpu_count=self._gpu_count)
            final = ModelConfig()
            final.CopyFrom(self._served.config)
            for field in ("instance_group", "version_policy"):
                final.ClearField(field)
            final.instance_group.extend(wanted.instance_group)
            final.version_policy.CopyFrom(wanted.version_policy)
            validate(final, model_name=final.name, gpu_count=self._gpu_count, require_tensors=False)
        except ContractError as error:
            raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error
        if not placements(final):
            raise InferenceError(ErrorCode.INVALID_ARG, f"model '{final.name}' has no instance to run on")
        return final

    def _make(
        self, wanted: Sequence[Placement], config: ModelConfig
    ) -> list[tuple[Placement, BackendInstance | LoopInstance]]:
        """Make and warm up instances. Blocks; all or none."""
        made: list[tuple[Placement, BackendInstance | LoopInstance]] = []
        try:
            for placement in wanted:
                instance = self._model.create_instance(placement.device, config, placement.label)
                made.append((placement, reshaping(instance, self._rules)))
            zeros = not isinstance(self._model, SelfDescribing)
            for placement, instance in made:
                warm_up(instance, self._rules, config, self._folder, name=placement.label, zeros=zeros)
        except BaseException:
            for _, instance in made:
                instance.close()
            raise
        return made
