"""Starting worker processes, reading what they print, and seeing that none outlives the node."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import queue
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import structlog

from serving_node.backends.python.guard import GUARD
from serving_node.backends.python.settings import worker_environment
from serving_node.backends.python.worker.flotilla_wire import FLAGS_BYTES
from serving_node.compiled import worker_folder
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.host_policy import ANYWHERE, HostPolicy

log = structlog.get_logger(__name__)

_STUB = Path(__file__).parent / "worker" / "stub.py"
_FOLDER = "flotilla-worker-"
_SOCKET_BUFFER = 1024 * 1024
_LONGEST_LINE = 4096
_LINES_PER_SECOND = 200


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What to start: ``interpreter`` runs ``program`` for ``instance``, with ``extra`` on top of its environment.

    ``host``: where it may run.
    """

    interpreter: str
    instance: str
    passed: frozenset[str]
    extra: dict[str, str]
    host: HostPolicy = ANYWHERE
    program: Path = _STUB


class WorkerProcess:
    """A started worker. ``data`` and ``control`` are the node's ends of the two sockets.

    ``flags`` is one byte for each request that the worker holds; see ``flotilla_wire.FLAG_SLOTS``.
    """

    def __init__(
        self, popen: subprocess.Popen[bytes], data: socket.socket, control: socket.socket, flags: mmap.mmap, folder: str
    ) -> None:
        self.flags = flags
        self.popen = popen
        self._folder = folder
        self._is_closed = False
        self.data = data
        self.control = control
        self.pid = popen.pid
        self.pidfd = os.pidfd_open(popen.pid)

    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self.popen.poll() is None

    def ending(self) -> str:
        """Return how the process ended, for people."""
        status = self.popen.poll()
        if status is None:
            return "it still runs"
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"it was ended by {signal.Signals(-status).name}"
        return f"it ended with status {status}"

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end of the process; blocks. Returns False when it still runs."""
        try:
            self.popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the process and those that it started. Does not wait for them."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.popen.poll() is None:
            self.popen.kill()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """End the process if it still runs and remove what it left; blocks. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self.kill()
        if not self.wait(timeout_seconds):
            log.error("python.worker_survives", pid=self.pid)
        self.data.close()
        self.control.close()
        os.close(self.pidfd)
        shutil.rmtree(self._folder, ignore_errors=True)
        GUARD.drop(self.pid)


class Caretaker:
    """One thread that starts all workers of a node and reads what they print.

    Workers ask the kernel to end them with the thread that started them, so that thread must live as long as the node.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_out, self._wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, order: WorkerOrder) -> WorkerProcess:
        """Start a worker; blocks for milliseconds.

        Raises:
            InferenceError: INTERNAL, the interpreter cannot be started.
        """
        outcome: Future[WorkerProcess] = Future()

        def run() -> None:
            try:
                outcome.set_result(self._spawn(order))
            except BaseException as error:
                outcome.set_exception(error)

        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="python workers", daemon=True)
                self._thread.start()
        self._orders.put(run)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_in, b"x")
        try:
            return outcome.result(30)
        except OSError as error:
            raise InferenceError(
                ErrorCode.INTERNAL, f"failed to start the Python interpreter {order.interpreter}: {error.strerror}"
            ) from error

    def _spawn(self, order: WorkerOrder) -> WorkerProcess:
        folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-")
        data, data_of_worker = socket_pair()
        control, control_of_worker = socket_pair()
        out, out_of_worker = os.pipe2(os.O_CLOEXEC)
        flags_fd = flags_file()
        passed = (data_of_worker.fileno(), control_of_worker.fileno(), flags_fd)
        compiled = worker_folder() if order.program == _STUB else None
        try:
            with order.host.applied():  # a process begins as the thread that starts it
                popen = subprocess.Popen(
                    [order.interpreter, "-s", str(order.program), *map(str, passed), str(compiled or "")],
                    stdin=subprocess.DEVNULL,
                    stdout=out_of_worker,
                    stderr=out_of_worker,
                    env={**worker_environment(order.passed, folder), **order.extra},
                    pass_fds=passed,
                    start_new_session=True,
                )
            GUARD.add(popen.pid, folder)
            process = WorkerProcess(popen, data, control, mmap.mmap(flags_fd, FLAGS_BYTES), folder)
        except BaseException:
            data.close()
            control.close()
            os.close(out)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            data_of_worker.close()
            control_of_worker.close()
            os.close(out_of_worker)
            os.close(flags_fd)
        os.set_blocking(out, False)
        self._selector.register(out, selectors.EVENT_READ, _Printed(out, order.instance, process.pid))
        return process

    def _run(self) -> None:
        _remove_left_behind(Path(tempfile.gettempdir()))
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._obey()
                elif not key.data.read():
                    self._selector.unregister(key.fd)
                    os.close(key.fd)

    def _obey(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_out, 4096)
        while not self._orders.empty():
            self._orders.get()()


class _Printed:
    """What one worker prints, as lines of the node's log: whole lines, not too long, not too many."""

    def __init__(self, fd: int, instance: str, pid: int) -> None:
        self._fd = fd
        self._instance = instance
        self._pid = pid
        self._rest = b""
        self._second = 0
        self._lines = 0

    def read(self) -> bool:
        """Log what is there. Returns False at the end."""
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE or not data:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._log(line)
        return bool(data)

    def _log(self, line: bytes) -> None:
        text = line[:_LONGEST_LINE].decode(errors="replace").rstrip()
        if not text:
            return
        second = int(time.monotonic())
        if second != self._second:
            if self._lines > _LINES_PER_SECOND:
                dropped = self._lines - _LINES_PER_SECOND
                log.warning("python.lines_dropped", instance=self._instance, lines=dropped)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= _LINES_PER_SECOND:
            log.info("python.printed", instance=self._instance, pid=self._pid, text=text)


def _remove_left_behind(temporary: Path) -> None:
    """Remove the folders of workers whose node was killed before it could."""
    for folder in temporary.glob(f"{_FOLDER}*"):
        node = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if node.isdecimal() and not Path("/proc", node).exists():
            shutil.rmtree(folder, ignore_errors=True)


def flags_file() -> int:
    """Return a new memory file for the flags of a connection: one byte for each request, none set."""
    fd = os.memfd_create("flotilla-flags", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, FLAGS_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection to a worker."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
    return pair
