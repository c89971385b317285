"""Runs a command in the sandbox and waits for it; whatever it does, the caller gets an outcome or one sentence."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from django.utils.translation import gettext as _

from workers.sandbox.order import Command, Limits

_PROGRAM = Path(__file__).parent / "inside.py"
# Building takes milliseconds; this much longer than the command's own deadline nothing in it can still be running.
_GRACE_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_READ = 65536


class SandboxUnavailable(Exception):
    """A part of the sandbox cannot be had on this host, so nothing was run; the message says which and why."""


class Ending(StrEnum):
    """How a command ended."""

    ITSELF = "itself"
    DEADLINE = "deadline"
    MEMORY = "memory"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left. ``status`` is its exit status, negative for a signal; it counts when it ended by itself.

    ``output`` is the end of what it printed, ``answer`` what it wrote to descriptor 3: empty when that was too much.
    ``peak_bytes`` is the most memory that its processes held together, seen five times a second.
    """

    ending: Ending
    status: int
    output: str
    answer: bytes
    peak_bytes: int
    seconds: float


def run(
    command: Command,
    limits: Limits,
    is_stopped: Callable[[], bool] = lambda: False,
    answer_file: IO[bytes] | None = None,
) -> Outcome:
    """Run a command to its end, or until ``is_stopped``; blocks. Nothing that it started is left afterwards.

    A large answer goes to ``answer_file`` instead of the outcome; the file is empty when it was too much.

    Raises:
        SandboxUnavailable: it was not run, because the sandbox cannot be had here.
    """
    began = time.monotonic()
    pipes = [os.pipe2(os.O_CLOEXEC) for _name in range(3)]
    (told, told_in), (answer, answer_in), (output, output_in) = pipes
    try:
        process = _started([told_in, answer_in], output_in)
    except OSError as error:
        for number in (told, answer, output):
            os.close(number)
        raise SandboxUnavailable(_cannot(str(error.strerror))) from error
    finally:
        for _reading, writing in pipes:
            os.close(writing)
    ends = {
        told: _End(_READ),
        answer: _End(limits.answer_bytes, file=answer_file),
        output: _End(limits.output_bytes, keeps_tail=True),
    }
    try:
        _send(process, command, limits)
        was_stopped = _listen(ends, began + limits.seconds + _GRACE_SECONDS, is_stopped)
    finally:
        _end(process)
        for number in ends:
            os.close(number)
    return _outcome(ends[told].data, was_stopped, ends[answer], ends[output], time.monotonic() - began)


class _End:
    """What has come out of a pipe, bounded: the beginning, or the tail; in memory, or in a file."""

    def __init__(self, most: int, *, keeps_tail: bool = False, file: IO[bytes] | None = None) -> None:
        self._most = most
        self._keeps_tail = keeps_tail
        self._file = file
        self.is_cut = False
        self.data = b""

    def add(self, data: bytes) -> None:
        """Take what was read."""
        if self._file is not None:
            self._keep(self._file, data)
            return
        self.data += data
        if len(self.data) > self._most:
            self.is_cut = True
            self.data = self.data[-self._most :] if self._keeps_tail else self.data[: self._most]

    def _keep(self, file: IO[bytes], data: bytes) -> None:
        if not self.is_cut and file.tell() + len(data) > self._most:
            self.is_cut = True
            file.seek(0)
            file.truncate()
        if not self.is_cut:
            file.write(data)


def _started(passed: list[int], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM), *map(str, passed), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        cwd="/",
        env={},
        pass_fds=passed,
        start_new_session=True,
    )


def _send(process: subprocess.Popen[bytes], command: Command, limits: Limits) -> None:
    assert process.stdin is not None
    # a process that ended already tells why
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(command.to_json(limits)).encode())


def _listen(ends: dict[int, _End], deadline: float, is_stopped: Callable[[], bool]) -> bool:
    """Read until all ends are closed, which comes with the last process; return whether it was stopped before."""
    with selectors.DefaultSelector() as selector:
        for number in ends:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map():
            if is_stopped() or time.monotonic() > deadline:
                return True
            for key, _events in selector.select(_LOOK_SECONDS):
                data = os.read(key.fd, _READ)
                ends[key.fd].add(data)
                if not data:
                    selector.unregister(key.fd)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what builds the sandbox; each process in it ends with the one that started it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outcome(told: bytes, was_stopped: bool, answer: _End, output: _End, seconds: float) -> Outcome:
    words = output.data.decode(errors="replace").replace("\0", "")
    said = b"" if answer.is_cut else answer.data
    if was_stopped:
        return Outcome(Ending.STOPPED, 0, words, said, 0, seconds)
    try:
        message = json.loads(told)
    except ValueError:
        message = {"unavailable": words.strip()[-500:] or _("it ended without a word")}
    if "unavailable" in message:
        raise SandboxUnavailable(_cannot(str(message["unavailable"])))
    return Outcome(Ending(message["ended"]), int(message["status"]), words, said, int(message["peak_bytes"]), seconds)


def _cannot(why: str) -> str:
    return _("The sandbox cannot be had on this host, so nothing was run: %(why)s.") % {"why": why.rstrip(".")}
