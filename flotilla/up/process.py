"""One supervised child: it cannot outlive the supervisor, is logged line by line and restarted with back-off."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flotilla.embedded.postgres import privileges
from flotilla.up.health import HealthGate

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_LOG_BYTES = 8 * 1024 * 1024
_STABLE_SECONDS = 30.0
_BACKOFF_FIRST_SECONDS = 0.25
_BACKOFF_LAST_SECONDS = 15.0


Say = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run and how to end it. ``orphan_signal`` is what the kernel sends when the supervisor dies."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(repr=False)
    is_healthy: HealthGate
    start_timeout_seconds: float = 90.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_seconds: float = 15.0
    orphan_signal: signal.Signals = signal.SIGKILL
    user: str | None = None
    working_folder: Path | None = None


class ProcessFailed(RuntimeError):
    """A child did not become healthy in time; the message holds its last words."""


class SupervisedProcess:
    """Keeps one child running until ``stop``.

    Concurrency: all methods on the loop of the main thread; the parent-death signal follows the *thread* that forks.
    """

    def __init__(self, spec: ProcessSpec, say: Say, log_folder: Path, on_spawn: Callable[[], None]) -> None:
        self.spec = spec
        self._say = say
        self._on_spawn = on_spawn
        self._log_path = log_folder / f"{spec.name}.log"
        self._child: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False
        self._last_words: list[str] = []

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    async def start(self) -> None:
        """Spawn, wait until healthy, then keep it running.

        Raises:
            ProcessFailed: it ended or did not answer within the start timeout.
        """
        await self._spawn()
        deadline = asyncio.get_running_loop().time() + self.spec.start_timeout_seconds
        while not await self.spec.is_healthy():
            if self._child is not None and self._child.returncode is not None:
                raise ProcessFailed(self._failure(f"ended with status {self._child.returncode}"))
            if asyncio.get_running_loop().time() > deadline:
                raise ProcessFailed(self._failure(f"was not healthy after {self.spec.start_timeout_seconds:.0f} s"))
            await asyncio.sleep(0.1)
        self._watch = asyncio.create_task(self._keep_running())

    async def stop(self) -> None:
        """End the child: its stop signal, then SIGKILL to its whole session when the timeout has passed."""
        self._stopping = True
        child = self._child
        if child is not None and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(self.spec.stop_signal)
            try:
                await asyncio.wait_for(child.wait(), self.spec.stop_timeout_seconds)
            except TimeoutError:
                self._say(self.spec.name, f"did not stop within {self.spec.stop_timeout_seconds:.0f} s: killing it")
        self._kill_session()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _spawn(self) -> None:
        orphan_signal = int(self.spec.orphan_signal)
        parent = os.getpid()

        def before_exec() -> None:
            # runs after the change of user, which would have cleared the setting
            _LIBC.prctl(_PR_SET_PDEATHSIG, orphan_signal, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        self._child = await asyncio.create_subprocess_exec(
            *self.spec.command,
            env=self.spec.environment,
            cwd=self.spec.working_folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # a session of its own: Ctrl-C reaches only the supervisor, which then stops everything in order
            start_new_session=True,
            preexec_fn=before_exec,
            limit=256 * 1024,
            **privileges(self.spec.user),
        )
        self._readers = [task for task in self._readers if not task.done()]
        self._readers.append(asyncio.create_task(self._copy_output(self._child)))
        self._on_spawn()

    async def _copy_output(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        while True:
            try:
                raw = await child.stdout.readline()
            except ValueError:
                continue  # a line longer than the limit: drop it rather than stall the child
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip()
            self._last_words = [*self._last_words[-9:], line]
            self._say(self.spec.name, line)
            self._append_log(line)

    def _append_log(self, line: str) -> None:
        with contextlib.suppress(OSError):
            if self._log_path.exists() and self._log_path.stat().st_size > _LOG_BYTES:
                self._log_path.replace(self._log_path.with_suffix(".log.1"))
            with self._log_path.open("a") as file:
                file.write(line + "\n")

    async def _keep_running(self) -> None:
        pause = _BACKOFF_FIRST_SECONDS
        loop = asyncio.get_running_loop()
        while not self._stopping:
            assert self._child is not None
            began = loop.time()
            status = await self._child.wait()
            if self._stopping:
                return
            self._kill_session()
            if loop.time() - began > _STABLE_SECONDS:
                pause = _BACKOFF_FIRST_SECONDS
            self._say(self.spec.name, f"ended with status {status}; starting it again in {pause:.2g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _BACKOFF_LAST_SECONDS)
            if not self._stopping:
                try:
                    await self._spawn()
                except OSError as error:
                    self._say(self.spec.name, f"cannot start: {error}")

    def _kill_session(self) -> None:
        """End whatever the child left in its session (pool workers of a killed Celery, for example)."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def _failure(self, what: str) -> str:
        words = "\n  ".join(self._last_words) or "(it said nothing)"
        return f"{self.spec.name} {what}. Its last words:\n  {words}"
