"""The Python backend: ``model.py`` files with Triton's interface, each instance in a process of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import structlog

from serving_node.backends.python.calls import LoadChain, WorkerCalls
from serving_node.backends.python.environment_store import EnvironmentStore, PackageIndex
from serving_node.backends.python.environments import Environments, Interpreter
from serving_node.backends.python.instance import PythonInstance, Worker, log_message
from serving_node.backends.python.link import Link, Message, WorkerGone
from serving_node.backends.python.metrics import WorkerMetrics
from serving_node.backends.python.processes import Caretaker, WorkerOrder
from serving_node.backends.python.settings import PythonOptions, python_options
from serving_node.backends.python.waiting import WaitingWorkers
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_wire import WireError
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.json_form import to_json
from serving_node.core.backend import Device, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.host_policy import ANYWHERE, HostPolicy
from serving_node.core.inner_calls import InnerCalls
from serving_node.observability.families import Family
from serving_node.observability.model_metrics import ModelMetrics

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.contract.signature import ModelSignature

log = structlog.get_logger(__name__)

_PLAIN_CLASS = re.compile(rb"^class TritonPythonModel\s*(\(\s*(object)?\s*\))?\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Callers:
    """What all models share: the door to others, who waits for whom, and the metrics that they make."""

    door: InnerCalls
    chain: LoadChain
    waiting: WaitingWorkers
    metrics: ModelMetrics


class PythonModel:
    """One version of a Python model; its instances are made from it."""

    starts_at_once = 4

    def __init__(
        self,
        source: ModelSource,
        caretaker: Caretaker,
        options: PythonOptions,
        interpreter: Interpreter,
        callers: Callers,
        file: Path,
    ) -> None:
        self._source = source
        self._file = file
        self._callers = callers
        self._caretaker = caretaker
        self._options = options
        self._interpreter = interpreter

    def signature(self) -> ModelSignature | None:
        """Return None: the config says it, completed by the model's own code."""
        return None

    def describe(self, config: ModelConfig) -> Mapping[str, Any] | None:
        """Return what ``auto_complete_config`` makes of the config, None when the model has none.

        Runs in a worker that is thrown away.

        Raises:
            InferenceError: INTERNAL, the code failed; the text is Python's.
        """
        if not self._may_complete():
            return None
        name = self._source.name
        link = self._link(name)
        try:
            message = self._ask(
                link, name, wire.COMPLETE, {**self._place(), "config": orjson.dumps(to_json(config)).decode()}
            )
            error, text = message.fields
            if error is not None:
                raise InferenceError(ErrorCode.INTERNAL, str(error))
            return None if text is None else dict(orjson.loads(text))
        except (ValueError, TypeError) as error:
            raise InferenceError(ErrorCode.INTERNAL, f"auto_complete_config gave no config: {error}") from error
        finally:
            link.close()

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> PythonInstance:
        """Return an instance whose worker has initialised the model.

        Raises:
            InferenceError: INTERNAL, ``initialize`` failed; the text is Python's.
        """
        arguments = {
            "model_config": orjson.dumps(to_json(config)).decode(),
            "model_instance_kind": device.kind.value,
            "model_instance_device_id": str(device.index),
            "model_instance_name": name,
            "model_repository": str(self._source.directory.parent),
            "model_version": str(self._source.version),
            "model_name": self._source.name,
        }
        order = {
            **self._place(),
            "args": arguments,
            "instance": name,
            "decoupled": config.model_transaction_policy.decoupled,
            "iterative": config.sequence_batching.iterative_sequence,
            "outputs": sorted(output.name for output in config.output),
            "busy_poll_ns": self._options.busy_poll_ns,
        }
        start = partial(self._started, name, order, device.host)
        return PythonInstance(name, start, busy_poll_ns=self._options.busy_poll_ns)

    def memory_bytes(self) -> int:
        """Return 0: the memory is that of other processes."""
        return 0

    def close(self) -> None:
        """Nothing is shared between instances but the interpreter's folder."""
        self._interpreter.close()

    def _may_complete(self) -> bool:
        """Return False when the file plainly has no such code: starting a worker and its imports take time."""
        text = self._file.read_bytes()
        return b"auto_complete_config" in text or not _PLAIN_CLASS.search(text)

    def _place(self) -> dict[str, Any]:
        return {
            "model": self._source.name,
            "version": str(self._source.version),
            "directory": str(self._source.directory),
            "code": str(self._file),
        }

    def _link(self, name: str, host: HostPolicy = ANYWHERE) -> Link:
        interpreter = self._interpreter
        order = WorkerOrder(str(interpreter.path), name, self._options.pass_environment, interpreter.variables, host)
        return Link(self._caretaker.start(order))

    def _started(self, name: str, order: dict[str, Any], host: HostPolicy) -> Worker:
        link = self._link(name, host)
        try:
            callers = self._callers
            metrics = WorkerMetrics(callers.metrics)
            calls = WorkerCalls(link, callers.door, callers.chain, self._source.name, metrics)
            message = self._ask(link, name, wire.START, order, calls)
            error, facts = message.fields
            if error is not None:
                raise InferenceError(ErrorCode.INTERNAL, str(error))
            worker = Worker(link, calls, has_probe=facts["is_ready"] is True, says_ready=facts["says_ready"] is True)
            calls.watch(self._callers.waiting, self._source.version, worker.exchange)
            return worker
        except (ValueError, TypeError, KeyError, WireError) as error:
            link.close()
            raise InferenceError(ErrorCode.INTERNAL, f"the worker of '{name}' makes no sense: {error}") from error
        except BaseException:
            link.close()
            raise

    def _ask(
        self, link: Link, name: str, kind: int, order: dict[str, Any], calls: WorkerCalls | None = None
    ) -> Message:
        """Send an order and wait for its answer; what the model logs meanwhile is logged, what it asks is answered."""
        try:
            link.receive_within(self._options.start_seconds)  # it is there
            link.send(kind, [order])
            while True:
                message = link.receive_within(self._options.initialize_seconds)
                if message.kind == wire.LOG:
                    log_message(name, message.fields)
                elif message.kind == wire.ASK and calls is not None:
                    calls.ask(message, is_loading=True)
                elif message.kind == wire.METRIC and calls is not None:
                    calls.metric(message)
                elif message.kind == wire.METRIC_DROPPED and calls is not None:
                    calls.metrics.drop(*message.fields)
                else:
                    return message
        except WorkerGone as error:
            link.process.wait(1.0)
            if link.process.popen.returncode == wire.NO_NUMPY:
                sentence = f"the environment of model '{self._source.name}' has no numpy, which every worker needs"
                raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
            log.error("python.worker_died", instance=name, reason=f"{error}; {link.process.ending()}")
            raise InferenceError(ErrorCode.INTERNAL, f"Stub process '{name}' is not healthy.") from error


class PythonBackend:
    """Opens Python models."""

    name = "python"

    def __init__(self, options: Mapping[str, str], calls: InnerCalls) -> None:
        self._options = python_options(options)
        self._callers = Callers(calls, LoadChain(), WaitingWorkers(), ModelMetrics())
        self._caretaker = Caretaker()
        store = EnvironmentStore(
            self._options.environments, PackageIndex(self._options.package_index), self._options.environment_seconds
        )
        self._environments = Environments(store)

    def open_model(self, source: ModelSource) -> PythonModel:
        """Find the file and the interpreter of a model; no process is started yet.

        Raises:
            InferenceError: INTERNAL, the file or its execution environment is missing.
        """
        return self.open_with(source, source.directory / (source.config.default_model_filename or "model.py"))

    def open_with(self, source: ModelSource, file: Path) -> PythonModel:
        """As ``open_model``, with the code in a file that may lie elsewhere."""
        if not file.is_file():
            raise InferenceError(ErrorCode.INTERNAL, f"Python model file not found in '{file}'")
        interpreter = self._environments.interpreter(source.config, source.directory, Path(sys.executable))
        return PythonModel(source, self._caretaker, self._options, interpreter, self._callers, file)

    def based(self, name: str, file: Path) -> PythonBasedBackend:
        """Return a backend that is a model.py itself: its models are data for that code."""
        return PythonBasedBackend(name, file, self)

    def build_log(self, version_directory: Path) -> str:
        """Return the end of what was said when a version's environment was built, empty when none was."""
        return self._environments.build_log(version_directory)

    def metric_families(self) -> list[Family]:
        """Return the metrics that models made. Safe on any thread."""
        return self._callers.metrics.families()


class PythonBasedBackend:
    """Opens models whose code is that of their backend. See ``PythonBackend.based``."""

    def __init__(self, name: str, file: Path, python: PythonBackend) -> None:
        self.name = name
        self._file = file
        self._python = python

    def open_model(self, source: ModelSource) -> PythonModel:
        """See ``PythonBackend.open_model``."""
        return self._python.open_with(source, self._file)


def backend(options: Mapping[str, str], calls: InnerCalls) -> PythonBackend:
    """Return the backend."""
    return PythonBackend(options, calls)
