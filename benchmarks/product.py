"""The whole product without a node, as ``flotilla up`` starts it, for as long as a benchmark needs it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2

from flotilla.up.data_folder import DataFolder

_START_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Product:
    """``token`` is that of somebody who may push. ``environment`` reaches the database and the broker."""

    url: str
    token: str
    environment: dict[str, str]
    folder: DataFolder

    def manage(self, *arguments: str) -> str:
        """Run a command of ``manage.py`` and return the last line that it printed."""
        return _django(self.environment, *arguments)

    def peak_bytes(self, name: str) -> int:
        """Return the most memory that a process (``web``...) has held since it started or ``forget_peak``."""
        for line in (self._proc(name) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise ValueError(f"the kernel says nothing about the memory of {name}")

    def cpu_seconds(self, name: str) -> float:
        """Return the processor time that a process has taken since it started."""
        fields = (self._proc(name) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def forget_peak(self, name: str) -> None:
        """Let the peak of a process begin again at what it holds now."""
        (self._proc(name) / "clear_refs").write_text("5")

    def _proc(self, name: str) -> Path:
        return Path("/proc") / str(self.folder.read_run_info()["processes"][name])


@contextlib.contextmanager
def product_running(port: int, data: Path) -> Iterator[Product]:
    """Start the product in the folder ``data`` and end it afterwards."""
    data.parent.chmod(0o755)
    command = [sys.executable, "-m", "flotilla.cli", "up", "--no-node", "--port", str(port), "--data-dir", str(data)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(process, f"{url}/readyz")
            folder = DataFolder(data)
            environment = folder.read_environment()
            author = json.loads(_django(environment, "demo_accounts"))["author"]
            yield Product(url, author["token"], environment, folder)
        finally:
            process.terminate()
            process.wait(60)


def _django(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "django", *arguments]
    done = subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(url, timeout=2, trust_env=False).status_code == 200:
                return
        time.sleep(0.5)
    sys.exit(f"{url} is not ready")
