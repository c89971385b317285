"""Backends by name; an engine is imported when the first model needs it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from typing import cast

from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Backend
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls

# name -> module with a function ``backend(options, calls)``. Options: ``--backend-config=<name>,<key>=<value>``.
_MODULES = {
    "onnxruntime": "serving_node.backends.onnxruntime.backend",
    "identity": "serving_node.backends.identity",
    "python": "serving_node.backends.python.backend",
}

Options = Mapping[str, str]


class Backends:
    """The registry of backends of one node; ``calls`` is their models' door to each other. Safe on any thread."""

    def __init__(self, options: Mapping[str, Options] | None = None, calls: InnerCalls | None = None) -> None:
        self._options = options or {}
        self._calls = calls or InnerCalls()
        self._lock = threading.Lock()
        self._loaded: dict[str, Backend] = {}

    def options(self, name: str) -> Options:
        """Return the options given for a backend, those for all backends (an empty name) included."""
        return {**self._options.get("", {}), **self._options.get(name, {})}

    def register(self, backend: Backend) -> None:
        """Add a backend of this name, or replace it."""
        with self._lock:
            self._loaded[backend.name] = backend

    def get(self, name: str) -> Backend:
        """Return the backend, importing its engine when it is first asked for. May block for seconds.

        Raises:
            InferenceError: INVALID_ARG when no backend has the name; UNSUPPORTED when its engine is not installed.
        """
        with self._lock:
            backend = self._loaded.get(name)
            if backend is None:
                backend = self._loaded[name] = self._import(name)
            return backend

    def _import(self, name: str) -> Backend:
        if name not in _MODULES:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"unable to find backend library for backend '{name}', try specifying runtime on the model"
                " configuration.",
            )
        try:
            module = importlib.import_module(_MODULES[name])
        except ImportError as error:
            raise InferenceError(
                ErrorCode.UNSUPPORTED, f"backend '{name}' is not installed on this node: {error}"
            ) from error
        make = cast(Callable[[Options, InnerCalls], Backend], module.backend)
        return make(self.options(name), self._calls)
