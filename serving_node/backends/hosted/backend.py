"""The node's side of backends in worker processes: models and instances as the scheduler knows them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving_node.backends.hosted.orders import said_config, said_device, said_source
from serving_node.backends.hosted.process import PROGRAM, HostProcess
from serving_node.backends.python.calls import LoadChain, WorkerCalls
from serving_node.backends.python.instance import PythonInstance, Worker
from serving_node.backends.python.link import Link
from serving_node.backends.python.metrics import WorkerMetrics
from serving_node.backends.python.processes import Caretaker, WorkerOrder
from serving_node.backends.python.settings import PythonOptions, python_options
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature
from serving_node.core.backend import Device, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.host_policy import HostPolicy
from serving_node.core.inner_calls import InnerCalls
from serving_node.observability.model_metrics import ModelMetrics

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


class HostedInstance(PythonInstance):
    """One instance in a worker process; it is replaced when it dies, as that of a Python model is."""

    def _unhealthy(self) -> InferenceError:
        return InferenceError(ErrorCode.INTERNAL, f"the worker process of instance '{self.name}' ended unexpectedly")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker says of the version that it has opened."""

    signature: ModelSignature | None
    describes: bool
    shares: bool


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens one version in worker processes. ``target``: what makes the backend there, as module:attribute."""

    source: ModelSource
    target: str
    options: Mapping[str, str]
    limits: PythonOptions
    caretaker: Caretaker

    def open(self, host: HostPolicy) -> tuple[HostProcess, Facts]:
        """Start a process and open the version in it; blocks. Raises InferenceError: the backend's, or INTERNAL."""
        name = self.source.name
        order = WorkerOrder(sys.executable, name, self.limits.pass_environment, {}, host, PROGRAM)
        process = HostProcess(self.caretaker, order, self.limits.start_seconds)
        opening = {
            "target": self.target,
            "options": dict(self.options),
            "path": [entry or str(Path.cwd()) for entry in sys.path],
            "source": said_source(self.source),
        }
        try:
            said = process.ask(wire.START, opening, self.limits.initialize_seconds)
            signature = said["signature"]
            facts = Facts(
                None if signature is None else ModelSignature.from_json(signature),
                said["describes"] is True,
                said["shares"] is True,
            )
            process.memory_bytes = int(said["memory_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            process.close()
            raise InferenceError(
                ErrorCode.INTERNAL, f"the worker process of '{name}' makes no sense: {error}"
            ) from error
        except BaseException:
            process.close()
            raise
        return process, facts


class HostedModel:
    """One version in worker processes: one for each instance, or for each device where the model wants that.

    The process that opened the version first becomes that of the first instance.
    """

    starts_at_once = 4

    def __init__(self, opener: Opener, first: HostProcess, facts: Facts) -> None:
        self._opener = opener
        self._facts = facts
        self._lock = threading.Lock()
        self._sharing = threading.Lock()
        self._spare: HostProcess | None = first
        self._processes = {first}
        self._by_device: dict[Device, HostProcess] = {}

    def signature(self) -> ModelSignature | None:
        """Return the inputs and outputs as the backend found them."""
        return self._facts.signature

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> HostedInstance:
        """Return an instance that a worker has made.

        Raises:
            InferenceError: that of the backend; INTERNAL when the worker ends meanwhile.
        """
        busy_poll_ns = self._opener.limits.busy_poll_ns
        order = {
            "device": said_device(device),
            "config": said_config(config),
            "instance": name,
            # instances that share an interpreter must not keep it from each other
            "busy_poll_ns": 0 if self._facts.shares else busy_poll_ns,
        }
        return HostedInstance(name, partial(self._started, device, order), busy_poll_ns=busy_poll_ns)

    def memory_bytes(self) -> int:
        """Return what the model takes of all its processes."""
        with self._lock:
            return sum(process.memory_bytes for process in self._processes if process.alive())

    def close(self) -> None:
        """End the processes that no instance has ended. Idempotent."""
        with self._lock:
            processes, self._processes = self._processes, set()
            self._spare = None
            self._by_device.clear()
        for process in processes:
            process.close()

    def _started(self, device: Device, order: dict[str, Any]) -> Worker:
        process = self._shared(device) if self._facts.shares else self._process(device)
        try:
            link = Link(process.connect())
        except InferenceError:
            process.close()
            raise
        try:
            said = process.answered(link, wire.START, order, self._opener.limits.initialize_seconds)
            process.memory_bytes = int(said["memory_bytes"])
        except BaseException:
            link.close()
            raise
        calls = WorkerCalls(link, InnerCalls(), LoadChain(), self._opener.source.name, WorkerMetrics(ModelMetrics()))
        return Worker(link, calls, has_probe=False, says_ready=True)

    def _shared(self, device: Device) -> HostProcess:
        """Return the process of all instances on a device."""
        with self._sharing:
            process = self._by_device.get(device)
            if process is None or not process.alive():
                process = self._by_device[device] = self._process(device)
            return process

    def _process(self, device: Device) -> HostProcess:
        """Return a process without instances: that of the opening once, then new ones."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            if spare.alive() and device.host == self._opener.source.devices[0].host:
                return spare
            spare.close()
        process, _ = self._opener.open(device.host)
        with self._lock:
            self._processes = {one for one in self._processes if one.alive()} | {process}
        return process


class DescribingHostedModel(HostedModel):
    """One that completes its config."""

    def describe(self, config: ModelConfig) -> Mapping[str, Any] | None:
        """Return the config as the model's code wants it. Before instances are made. Raises InferenceError."""
        process, said = self._spare, said_config(config)
        assert process is not None
        described = process.ask(wire.COMPLETE, said, self._opener.limits.initialize_seconds)
        return None if described is None else dict(described)


class HostedBackend:
    """Opens models of one backend in worker processes; nothing of it is imported here."""

    def __init__(self, name: str, target: str, options: Mapping[str, str], caretaker: Caretaker) -> None:
        self.name = name
        self._target = target
        self._options = options
        self._limits = python_options(options)
        self._caretaker = caretaker

    def open_model(self, source: ModelSource) -> HostedModel:
        """Open a version in a first worker; blocks.

        Raises:
            InferenceError: the backend's; INTERNAL when the worker cannot be started or ends.
        """
        opener = Opener(source, self._target, self._options, self._limits, self._caretaker)
        first, facts = opener.open(source.devices[0].host)
        return (DescribingHostedModel if facts.describes else HostedModel)(opener, first, facts)
