"""Backends by name, and what hosts them; an engine is imported when the first model needs it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, cast

from serving_node.backends.hosted.backend import HostedBackend
from serving_node.backends.python.processes import Caretaker
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Backend, Host
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.observability.families import Family
from serving_node.observability.model_metrics import MeasuringBackend

if TYPE_CHECKING:
    from serving_node.backends.python.backend import PythonBackend

ENTRY_POINTS = "flotilla.backends"
"""The group of entry points by which packages bring backends: name = module:factory."""
IN_PROCESS_ENTRY_POINTS = "flotilla.backends.in_process"
"""The group in which a package names those of its backends again that may run in the node's own process."""


@dataclass(frozen=True, slots=True)
class KnownBackend:
    """A backend that can be had. ``target``: its function ``(options, calls)``, as module:attribute.

    ``host``: what hosts it when a model does not say. ``hosts``: what may; none where it starts processes itself.
    ``code_option``: the option with which its files may hold code, so that it runs in workers only.
    """

    target: str
    host: Host
    hosts: frozenset[Host]
    code_option: str = ""


def _of_the_node(
    module: str, host: Host, hosts: Collection[Host] = frozenset(Host), code_option: str = ""
) -> KnownBackend:
    return KnownBackend(f"serving_node.backends.{module}:backend", host, frozenset(hosts), code_option)


_WORKERS = frozenset({Host.PROCESS})


# Models of PyTorch are code in every format: none of them may come into the node's own process.
_KNOWN = {
    "onnxruntime": _of_the_node("onnxruntime.backend", Host.THREAD),
    "identity": _of_the_node("identity", Host.THREAD),
    "python": _of_the_node("python.backend", Host.PROCESS, ()),
    "openvino": _of_the_node("openvino.backend", Host.THREAD),
    "trees": _of_the_node("trees.backend", Host.THREAD),
    "tensorrt": _of_the_node("tensorrt.backend", Host.THREAD, code_option="version-compatible"),
    "pytorch": _of_the_node("pytorch.backend", Host.PROCESS, _WORKERS),
}

Options = Mapping[str, str]


class Backends:
    """The registry of backends of one node; ``calls`` is their models' door to each other. Safe on any thread.

    ``in_process``: the backends of other packages that the operator lets into the node's own process.
    ``directory``: of folders NAME with a model.py, which serves the models of a backend NAME; see ``based``.
    """

    def __init__(
        self,
        options: Mapping[str, Options] | None = None,
        calls: InnerCalls | None = None,
        in_process: Collection[str] = (),
        directory: Path | None = None,
    ) -> None:
        self._directory = directory
        self._options = options or {}
        self._calls = calls or InnerCalls()
        self._in_process = frozenset(in_process)
        self._caretaker = Caretaker()
        self._lock = threading.Lock()
        self._loaded: dict[tuple[str, Host], Backend] = {}
        self._registered: dict[str, Backend] = {}

    def options(self, name: str) -> Options:
        """Return the options given for a backend, those for all backends (an empty name) included."""
        return {**self._options.get("", {}), **self._options.get(name, {})}

    def register(self, backend: Backend) -> None:
        """Add a backend of this name, or replace it, whatever the host."""
        with self._lock:
            self._registered[backend.name] = backend

    def get(self, name: str, host: Host | None = None) -> Backend:
        """Return the backend in a host, its own choice with None. Imports it at first; may block for seconds.

        Raises:
            InferenceError: INVALID_ARG when no backend has the name, or it is not for that host; UNSUPPORTED when its
                engine is not installed.
        """
        file = self._model_file(name)
        if file is not None:
            _refuse_threads(name, host)
            return cast("PythonBackend", self.get("python")).based(name, file)
        with self._lock:
            if name in self._registered:
                return self._registered[name]
            known = _KNOWN.get(name) or self._brought(name)
            if self.options(name).get(known.code_option, "false").lower() not in ("false", "0", ""):
                known = replace(known, host=Host.PROCESS, hosts=_WORKERS)
            if Host.THREAD not in known.hosts:
                _refuse_threads(name, host)
            chosen = host or known.host
            backend = self._loaded.get((name, chosen))
            if backend is None:
                backend = self._loaded[name, chosen] = self._made(name, known, chosen)
            return backend

    def metric_families(self) -> list[Family]:
        """Return the metrics that models have made for themselves. Safe on any thread."""
        return [
            family
            for backend in list(self._loaded.values())
            if isinstance(backend, MeasuringBackend)
            for family in backend.metric_families()
        ]

    def build_log(self, version_directory: Path) -> str:
        """Return the end of what was said when a version's environment was built, empty when none was."""
        python = self._loaded.get(("python", Host.PROCESS))
        return "" if python is None else cast("PythonBackend", python).build_log(version_directory)

    def _model_file(self, name: str) -> Path | None:
        """Return the code of a backend written in Python, None when there is no such backend."""
        if self._directory is None or name in _KNOWN or name in self._registered:
            return None
        if name in ("", "..") or name != Path(name).name:
            return None  # not the name of a folder in this one
        file = self._directory / name / "model.py"
        return file if file.is_file() else None

    def _made(self, name: str, known: KnownBackend, host: Host) -> Backend:
        if known.hosts and host is Host.PROCESS:
            return HostedBackend(name, known.target, self.options(name), self._caretaker)
        module, _, attribute = known.target.partition(":")
        try:
            make = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise InferenceError(
                ErrorCode.UNSUPPORTED, f"backend '{name}' is not installed on this node: {error}"
            ) from error
        return cast(Callable[[Options, InnerCalls], Backend], make)(self.options(name), self._calls)

    def _brought(self, name: str) -> KnownBackend:
        """Return a backend of another package: in workers, unless its author and the operator say otherwise."""
        found = next(iter(entry_points(group=ENTRY_POINTS, name=name)), None)
        if found is None:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"unable to find backend library for backend '{name}', try specifying runtime on the model"
                " configuration.",
            )
        is_declared = bool(entry_points(group=IN_PROCESS_ENTRY_POINTS, name=name))
        if is_declared and name in self._in_process:
            return KnownBackend(found.value, Host.THREAD, frozenset(Host))
        return KnownBackend(found.value, Host.PROCESS, _WORKERS)


def _refuse_threads(name: str, host: Host | None) -> None:
    if host is Host.THREAD:
        sentence = f"backend '{name}' runs in worker processes only: 'flotilla.host' cannot be 'thread'"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
