"""Conversions in a process of their own: scrubbed environment, own temporary folder, deadline, memory limit.

Whatever a file does to the process that reads it, the caller gets a report or one sentence.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from conversion.errors import ConversionFailed
from conversion.order import Order
from conversion.settings import scrubbed_environment
from serving_node.contract.conversion import ConversionReport, ConversionVerdict
from serving_node.contract.errors import ContractError

_FOLDER = "flotilla-convert-"
_LONGEST_MESSAGE = 16 << 20
_LOG_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one conversion may take."""

    seconds: float = 1800.0
    memory_bytes: int = 16 << 30


def run(order: Order, limits: Limits, say: Callable[[str], None], *, keep_failed: bool = False) -> ConversionReport:
    """Convert in a new process and return its report; blocks.

    ``order.target`` appears at once and whole, and only when the verdict is not fail (or with ``keep_failed``).

    Raises:
        ConversionFailed: it cannot be converted, or the process took too long or ended.
    """
    source, target = Path(order.source).absolute(), Path(order.target).absolute()
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    try:
        made = folder / "model.onnx"
        samples = str(Path(order.samples).absolute()) if order.samples else ""
        inner = replace(order, source=str(source), target=str(made), samples=samples)
        report = _converted(inner, limits, folder, say)
        report = replace(report, target=replace(report.target, name=target.name))
        if report.verdict is not ConversionVerdict.FAIL or keep_failed:
            _put_in_place(made, target)
        return report
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _converted(order: Order, limits: Limits, folder: Path, say: Callable[[str], None]) -> ConversionReport:
    out, out_of_child = os.pipe2(os.O_CLOEXEC)
    with os.fdopen(out, "rb", buffering=0) as messages, tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-s", "-m", "conversion"),
                    *(str(out_of_child), str(limits.memory_bytes), str(os.getpid())),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=scrubbed_environment(str(folder)),
                pass_fds=(out_of_child,),
                start_new_session=True,
            )
        finally:
            os.close(out_of_child)
        said = ["Starting"]

        def hear(sentence: str) -> None:
            said.append(sentence)
            say(sentence)

        try:
            _send(process, order)
            last = _listen(messages, time.monotonic() + limits.seconds, limits, hear)
            if not last:  # it is about to end; how it does so is all that there is to tell
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
        finally:
            _end(process)
        if "report" in last:
            try:
                return ConversionReport.from_json(last["report"])
            except ContractError as error:
                raise ConversionFailed(f"The conversion's process sent no good report: {error.message}.") from None
        if "error" in last:
            raise ConversionFailed(str(last["error"]))
        raise ConversionFailed(_ending(process, log, said[-1]))


def _send(process: subprocess.Popen[bytes], order: Order) -> None:
    assert process.stdin is not None
    # a process that ended already tells why by its status
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(order.to_json()).encode())


def _listen(messages: IO[bytes], deadline: float, limits: Limits, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the last message, an empty one when the process ended without any."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise ConversionFailed(f"The conversion took longer than {limits.seconds:g} seconds and was ended.")
            data = messages.read(65536)
            if not data:
                return {}
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = _message(line)
                if "say" not in message:
                    return message
                say(str(message["say"]))
            if len(rest) > _LONGEST_MESSAGE:
                raise ConversionFailed("The conversion's report is too long.")


def _message(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):  # code of the file may write what it likes
        raise ConversionFailed("The conversion's process said something that is no report.") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(process: subprocess.Popen[bytes], log: IO[bytes], step: str) -> str:
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LOG_BYTES))
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    how = f"with status {process.returncode}"
    with contextlib.suppress(ValueError):
        how = f"by {signal.Signals(-process.returncode).name}"
    last = f", its last words: {lines[-1][:300]}" if lines else ""
    return f"The conversion was ended {how} at the step: {step}{last}"


def _put_in_place(made: Path, target: Path) -> None:
    """Move the file to where it was asked for; a reader sees the whole file or none."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, beside)
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConversionFailed(f"{target} cannot be written: {error.strerror}.") from error
