"""A Flotilla of really running processes for end-to-end tests: own ports, own data folder, own servers."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 300
_FOREIGN = {"DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "FLOTILLA_DATA_DIR"}


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 120) -> Any:
    """Return the first true answer; fail with ``what`` when the deadline passes."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.1)


def clean_environment(**extra: str) -> dict[str, str]:
    """Return the environment without what would make Flotilla use other servers."""
    return {name: value for name, value in os.environ.items() if name not in _FOREIGN} | extra


@dataclass
class RunningFlotilla:
    """``flotilla up`` in a folder. ``password`` is the first administrator's."""

    data_dir: Path
    port: int
    node_port: int
    command: list[str] = field(default_factory=lambda: [sys.executable, "-m", "flotilla.cli"])
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    output: list[str] = field(default_factory=list)
    username: str = "admin"
    password: str = ""

    @property
    def url(self) -> str:
        """The console."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait for the line that says where it is."""
        self.process = subprocess.Popen(
            [
                *self.command,
                *("up", "--port", str(self.port), "--node-port", str(self.node_port)),
                *("--data-dir", str(self.data_dir), *self.arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=clean_environment(PYTHONUNBUFFERED="1", **self.environment),
            start_new_session=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, lines), daemon=True).start()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                line = lines.get(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"did not start:\n{self.tail()}") from None
            if line is None:
                raise AssertionError(f"ended while starting:\n{self.tail()}")
            if found := re.search(r"First login:\s+(\S+)\s+(\S+)", line):
                self.username, self.password = found.groups()
            if "Stop: Ctrl-C" in line:
                return

    def stop(self, number: int = signal.SIGINT, seconds: float = 90) -> int:
        """Signal the supervisor and return its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """kill -9 of the supervisor alone."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def discard(self) -> None:
        """Stop it if it runs and remove what it keeps outside the data folder."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        pointer = self.data_dir / "postgres-home"
        if pointer.exists():
            shutil.rmtree(pointer.read_text(), ignore_errors=True)

    def run_info(self) -> dict[str, Any]:
        """What the supervisor says about itself."""
        return dict(json.loads((self.data_dir / "run.json").read_text()))

    def pid_of(self, name: str) -> int | None:
        """The process id that a child has now."""
        return self.run_info()["processes"].get(name)

    def tail(self, lines: int = 60) -> str:
        """The last lines that it printed."""
        return "\n".join(self.output[-lines:])

    def get(self, url: str) -> int:
        """Return the status of a GET, 0 when nobody answers."""
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def _read(self, process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line.rstrip())
            lines.put(line)
        lines.put(None)


def is_alive(pid: int) -> bool:
    """True while the process exists and is not a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
