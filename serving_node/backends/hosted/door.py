"""The worker's side: one opened version, and a thread for each instance that the node wants of it."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

import structlog

from serving_node.backends.hosted.orders import (
    CONNECTION_FDS,
    read_config,
    read_source,
    said_error,
)
from serving_node.backends.hosted.serving import Opened, resident_bytes, serve
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_channel import Channel
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Backend, SelfDescribing, SharesProcess
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls

_INFO = 20


class Door:
    """The first connection of a worker. It ends with the process, and the process with it."""

    def __init__(self, data: socket.socket, control: socket.socket) -> None:
        self._channel = Channel(data, control)
        self._control = control
        self._opened: Opened | None = None

    def serve(self) -> None:
        """Obey orders. Never returns."""
        structlog.configure(
            processors=[structlog.processors.add_log_level, structlog.processors.LogfmtRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(_INFO),
        )
        threading.Thread(target=self._admit, name="door", daemon=True).start()
        self._channel.send(wire.LOG, [3, "the worker is there", "", 0])
        while True:
            message = self._channel.receive()
            if message is None:
                os._exit(1)
            kind, fields = message[:2]
            if kind == wire.START:
                self._answer(wire.STARTED, lambda order=fields[0]: self._open(order))
            elif kind == wire.COMPLETE:
                self._answer(wire.COMPLETED, lambda text=fields[0]: self._describe(text))
            elif kind == wire.FINALIZE:
                self._finalize()

    def _answer(self, kind: int, act: Any) -> None:
        """Do something and say what came of it, or why it failed."""
        try:
            value = act()
        except BaseException as error:
            if not isinstance(error, InferenceError):
                traceback.print_exc()
            self._channel.send(kind, [said_error(error), None])
        else:
            self._channel.send(kind, [None, value])

    def _open(self, order: Mapping[str, Any]) -> dict[str, Any]:
        sys.path[:] = order["path"]
        module, _, attribute = order["target"].partition(":")
        make = importlib.import_module(module)
        for name in attribute.split("."):
            make = getattr(make, name)
        backend: Backend = make(order["options"], InnerCalls())  # type: ignore[operator]
        source = read_source(order["source"])
        before = resident_bytes()
        model = backend.open_model(source)
        opened = self._opened = Opened(model, source, before)
        signature = model.signature()
        return {
            "signature": None if signature is None else signature.to_json(),
            "memory_bytes": opened.memory_bytes(),
            "describes": isinstance(model, SelfDescribing),
            "shares": isinstance(model, SharesProcess) and model.shares_process(),
        }

    def _describe(self, text: str) -> dict[str, Any] | None:
        opened = self._opened
        if opened is None or not isinstance(opened.model, SelfDescribing):
            raise InferenceError(ErrorCode.INTERNAL, "the model does not complete configs")
        described = opened.model.describe(read_config(text))
        return None if described is None else dict(described)

    def _admit(self) -> None:
        """Take the sockets of instances and serve each on a thread of its own. The process ends with the connection."""
        while True:
            try:
                text, fds, _, _ = socket.recv_fds(self._control, 16, CONNECTION_FDS, socket.MSG_CMSG_CLOEXEC)
            except OSError:
                text, fds = b"", []
            opened = self._opened
            if not text or opened is None or len(fds) != CONNECTION_FDS:
                os._exit(1)
            threading.Thread(target=serve, args=(opened, *fds), daemon=True).start()

    def _finalize(self) -> None:
        if self._opened is not None:
            try:
                self._opened.model.close()
            except Exception:
                traceback.print_exc()
        self._channel.send(wire.FINALIZED, [])
        sys.stdout.flush()
        os._exit(0)
