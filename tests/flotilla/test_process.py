"""One supervised child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from flotilla.up.health import always
from flotilla.up.process import ProcessFailed, ProcessSpec, SupervisedProcess

_SAYS = "import sys, time; print('hello', flush=True); time.sleep(60)"


def _supervised(tmp_path: Path, code: str, **changes: object) -> tuple[SupervisedProcess, list[str], list[int | None]]:
    said: list[str] = []
    pids: list[int | None] = []
    spec = ProcessSpec("child", [sys.executable, "-c", code], dict(os.environ), always, **changes)  # type: ignore[arg-type]
    process = SupervisedProcess(spec, lambda _name, line: said.append(line), tmp_path, lambda: pids.append(process.pid))
    return process, said, pids


async def _until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.02)


async def test_killed_child_is_started_again(tmp_path: Path) -> None:
    process, said, pids = _supervised(tmp_path, _SAYS)
    await process.start()
    await _until(lambda: "hello" in said)
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await _until(lambda: len(pids) == 2 and process.pid not in (None, first))
    await process.stop()
    assert process.pid is None
    assert (tmp_path / "child.log").read_text().count("hello") >= 1


async def test_child_that_ends_while_starting_is_reported_with_its_last_words(tmp_path: Path) -> None:
    async def never() -> bool:
        await asyncio.sleep(0.01)
        return False

    process, _said, _pids = _supervised(tmp_path, "print('no such file'); raise SystemExit(3)")
    object.__setattr__(process.spec, "is_healthy", never)
    with pytest.raises(ProcessFailed, match=r"(?s)status 3.*no such file"):
        await process.start()
    await process.stop()


async def test_deaf_child_is_killed_with_its_own_children(tmp_path: Path) -> None:
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(grandchild.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    process, said, _pids = _supervised(tmp_path, code, stop_timeout_seconds=0.3)
    await process.start()
    await _until(lambda: said)
    grandchild = int(said[0])
    await process.stop()

    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            return "\nState:\tZ" in Path(f"/proc/{grandchild}/status").read_text()
        return True

    await _until(is_gone)
