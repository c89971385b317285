"""More, fewer or other instances for a model that goes on serving.

Source: Triton's update of a model whose config differs in ``instance_group`` or ``version_policy`` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import normalise, validate
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelInstanceGroup
from serving_node.core.backend import BackendInstance, BackendModel, Device, DeviceKind, LoopInstance, SelfDescribing
from serving_node.core.errors import InferenceError
from serving_node.scheduling.host_policies import HostPolicies
from serving_node.scheduling.instances import InstanceThread, LoopRunner
from serving_node.scheduling.io_rules import IoRules
from serving_node.scheduling.padding import padding
from serving_node.scheduling.reshaping import reshaping
from serving_node.scheduling.served_model import ServedModel
from serving_node.scheduling.turns import Share, Turns, share_of
from serving_node.scheduling.warmup import warm_up

log = structlog.get_logger(__name__)

Runner = InstanceThread | LoopRunner


@dataclass(frozen=True, slots=True)
class Placement:
    """One instance that a config asks for. Two of the same ``kind`` can stand for each other."""

    label: str
    device: Device
    kind: Hashable
    share: Share = field(default=Share(), compare=False)


_NO_POLICIES = HostPolicies()


def placements(config: ModelConfig, hosts: HostPolicies = _NO_POLICIES) -> list[Placement]:
    """Return the instances that a normalised config asks for, in order. Passive groups have none.

    Raises:
        InferenceError: INVALID_ARG, the host policy of a group makes no sense.
    """
    found: list[Placement] = []
    for group in config.instance_group:
        if group.passive:
            continue
        count = max(1, group.count)
        if group.kind == ModelInstanceGroup.KIND_GPU:
            gpus = [Device(DeviceKind.GPU, index, hosts.of(group, index)) for index in group.gpus]
            devices = [device for device in gpus for _ in range(count)]
        else:
            is_model = group.kind == ModelInstanceGroup.KIND_MODEL
            devices = [Device(DeviceKind.MODEL if is_model else DeviceKind.CPU, 0, hosts.of(group, None))] * count
        kind = ModelInstanceGroup()
        kind.CopyFrom(group)
        for left_out in ("name", "count", "gpus"):
            kind.ClearField(left_out)
        signature = kind.SerializeToString(deterministic=True)
        found += [
            Placement(f"{group.name}_{n}", device, (signature, device), share_of(group, device))
            for n, device in enumerate(devices)
        ]
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
    make = [replace(one, label=label) for label, one in zip(labels, free, strict=False)]
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
        runner: Callable[[Placement, BackendInstance | LoopInstance], Runner],
        served: ServedModel,
        hosts: HostPolicies = _NO_POLICIES,
        turns: Turns | None = None,
    ) -> None:
        self._model = model
        self._rules = rules
        self._folder = folder
        self._gpu_count = gpu_count
        self._scheduler = scheduler
        self._runner = runner
        self._served = served
        self._hosts = hosts
        self._turns = turns
        self._current = list(zip(placements(served.config, hosts), runners, strict=True))

    async def resize(self, config: ModelConfig) -> None:
        """See ``ServedModel.resize``."""
        final = self._completed(config)
        plan = steps([placement for placement, _ in self._current], placements(final, self._hosts))
        made = await asyncio.to_thread(self._make, plan.make, final)
        added = [(placement, self._runner(placement, instance)) for placement, instance in made]
        if self._turns is not None:
            try:
                self._turns.add({runner: placement.share for placement, runner in added})
            except InferenceError:
                await asyncio.to_thread(_close, [instance for _, instance in made])
                raise
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
        if not placements(final, self._hosts):
            raise InferenceError(ErrorCode.INVALID_ARG, f"model '{final.name}' has no instance to run on")
        return final

    def _make(
        self, wanted: Sequence[Placement], config: ModelConfig
    ) -> list[tuple[Placement, BackendInstance | LoopInstance]]:
        """Make and warm up instances. Blocks; all or none."""
        made: list[tuple[Placement, BackendInstance | LoopInstance]] = []
        try:
            for placement in wanted:
                with placement.device.host.applied():
                    instance = self._model.create_instance(placement.device, config, placement.label)
                made.append((placement, padding(reshaping(instance, self._rules), self._rules)))
            zeros = not isinstance(self._model, SelfDescribing)
            for placement, instance in made:
                warm_up(instance, self._rules, config, self._folder, name=placement.label, zeros=zeros)
        except BaseException:
            _close([instance for _, instance in made])
            raise
        return made


def _close(instances: Sequence[BackendInstance | LoopInstance]) -> None:
    for instance in instances:
        instance.close()
