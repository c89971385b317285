"""The node's side of a hosting worker: the process, its door, and one connection for each instance."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import threading
from pathlib import Path
from typing import Any

import structlog

from serving_node.backends.hosted.orders import check_error
from serving_node.backends.python.instance import log_message
from serving_node.backends.python.link import Link, WorkerGone
from serving_node.backends.python.processes import (
    Caretaker,
    WorkerOrder,
    WorkerProcess,
    flags_file,
    socket_pair,
)
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_wire import FLAGS_BYTES, WireError
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

log = structlog.get_logger(__name__)

PROGRAM = Path(__file__).parent / "stub.py"
_FINALIZE_SECONDS = 10.0


class Connection(WorkerProcess):
    """One instance's sockets to a worker, which other instances may share. Ends the process with the last of them."""

    def __init__(self, host: HostProcess, data: socket.socket, control: socket.socket, flags: mmap.mmap) -> None:
        super().__init__(host.process.popen, data, control, flags, "")
        self._host = host
        self._is_let_go = False

    def wait(self, timeout_seconds: float) -> bool:
        """Return whether the process has ended. Does not wait: it goes on until all its instances are closed."""
        return not self.alive()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Let go of the process. Idempotent."""
        if self._is_let_go:
            return
        self._is_let_go = True
        self.data.close()
        self.control.close()
        os.close(self.pidfd)
        self._host.release()


class HostProcess:
    """A worker and its door. Blocks; safe on any thread, one order at a time. ``name`` is for logs and errors."""

    def __init__(self, caretaker: Caretaker, order: WorkerOrder, start_seconds: float) -> None:
        self.memory_bytes = 0
        self._name = order.instance
        self.process = caretaker.start(order)
        self._link = Link(self.process)
        self._lock = threading.Lock()
        self._connections = 0
        self._is_closed = False
        try:
            self._link.receive_within(start_seconds)  # it is there
        except WorkerGone as error:
            sentence = self._sentence(error)
            self.close()
            raise InferenceError(ErrorCode.INTERNAL, sentence) from error

    def alive(self) -> bool:
        """Return whether instances can be made in it."""
        return not self._is_closed and self.process.alive()

    def ask(self, kind: int, field: Any, seconds: float) -> Any:
        """Give an order at the door and return its value. See ``answered``."""
        with self._lock:
            return self.answered(self._link, kind, field, seconds)

    def answered(self, link: Link, kind: int, field: Any, seconds: float) -> Any:
        """Send an order and return the value that comes back; what is logged meanwhile is logged here.

        Raises:
            InferenceError: that which the worker answered; INTERNAL when it ended or does not answer.
        """
        try:
            link.send(kind, [field])
            while (message := link.receive_within(seconds)).kind == wire.LOG:
                log_message(self._name, message.fields)
            error, value = message.fields
            check_error(error)
        except (WorkerGone, WireError, ValueError, TypeError) as failure:
            raise InferenceError(ErrorCode.INTERNAL, self._sentence(failure)) from failure
        return value

    def connect(self) -> Connection:
        """Return a new connection for one instance. Raises InferenceError when the process is gone."""
        with self._lock:
            if self._is_closed:
                raise InferenceError(ErrorCode.INTERNAL, f"the worker process of '{self._name}' was closed")
            data, data_of_worker = socket_pair()
            control, control_of_worker = socket_pair()
            flags_fd = flags_file()
            fds = [data_of_worker.fileno(), control_of_worker.fileno(), flags_fd]
            try:
                socket.send_fds(self.process.control, [b"x"], fds)
                connection = Connection(self, data, control, mmap.mmap(flags_fd, FLAGS_BYTES))
            except OSError as error:
                data.close()
                control.close()
                raise InferenceError(ErrorCode.INTERNAL, self._sentence(error)) from error
            finally:
                data_of_worker.close()
                control_of_worker.close()
                os.close(flags_fd)
            self._connections += 1
            return connection

    def release(self) -> None:
        """Note that a connection is closed; with the last one the process ends."""
        with self._lock:
            self._connections -= 1
            if self._connections:
                return
        self.close()

    def close(self) -> None:
        """Let the model free what it holds, then end the process. Blocks for some seconds at most. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        with contextlib.suppress(WorkerGone):
            self._link.send(wire.FINALIZE, [])
            while self._link.receive_within(_FINALIZE_SECONDS).kind != wire.FINALIZED:
                pass
            self.process.wait(1.0)
        self._link.close()

    def _sentence(self, failure: Exception) -> str:
        """Return why an order came to nothing."""
        self.process.wait(3.0)  # it may be on its way to its end, on a busy machine for long
        reason = str(failure) if self.process.alive() else self.process.ending()
        log.error("hosted.worker_failed", model=self._name, reason=f"{failure}; {self.process.ending()}")
        return f"the worker process of '{self._name}' cannot be used: {reason}"
