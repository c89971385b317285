"""The two servers as processes on loopback: one command line per kind of server that the cases need."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.differential.models import write_repository
from tests.ports import held_ports

Write = Callable[[Path, str], None]

_READY_SECONDS = 120
# Flags of both, and those that only one has.
_FLAGS: dict[str, list[str]] = {
    "explicit": ["--model-control-mode=explicit"],
    "guarded": [
        "--exit-on-error=false",
        "--strict-readiness=false",
        "--http-header-forward-pattern=x-forward-.*",
        "--grpc-header-forward-pattern=x-forward-.*",
        "--http-restricted-api=model-repository,statistics:admin-key=admin-value",
        "--http-restricted-api=logging:log-key=log-value",
        "--grpc-restricted-protocol=model-repository,statistics:admin-key=admin-value",
        "--grpc-restricted-protocol=logging:log-key=log-value",
        "--id=guarded-server",
    ],
    "polling": ["--model-control-mode=poll", "--repository-poll-secs=1", "--exit-on-error=false"],
    "limited": [
        "--model-control-mode=explicit",
        "--rate-limit=execution_count",
        "--rate-limit-resource=R1:1",
        "--rate-limit-resource=R3:2",
        "--host-policy=first,cpu-cores=0-0",
        "--host-policy=one,cpu-cores=1",
        "--host-policy=letter,cpu-cores=a-1",
        "--host-policy=open,cpu-cores=0-",
        "--host-policy=node,numa-node=c",
    ],
    "caching": ["--model-control-mode=explicit", "--cache-config=local,size=16384"],
}
PROFILES = tuple(_FLAGS)
_ONLY_NODE = ["--allow-client-shm=true"]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: ``port`` serves HTTP, one above gRPC, two above metrics."""

    port: int
    folder: Path
    process: subprocess.Popen[bytes]
    log: Path

    def is_alive(self) -> bool:
        """Say whether the process still runs."""
        return self.process.poll() is None


def oracle() -> Path | None:
    """Return the folder of the reference server's scripts, None when the environment names none."""
    folder = os.environ.get("FLOTILLA_ORACLE")
    return Path(folder) if folder and Path(folder, "triton.sh").exists() else None


@contextlib.contextmanager
def triton(profile: str, port: int | None = None, write: Write = write_repository) -> Iterator[Server]:
    """Run a real Triton over a repository of its own, which ``write`` makes."""
    scripts = oracle()
    assert scripts is not None, "FLOTILLA_ORACLE names no folder with triton.sh"
    with _running(
        profile, port, write, lambda folder, base: ["bash", str(scripts / "triton.sh"), str(folder), str(base)]
    ) as s:
        yield s


@contextlib.contextmanager
def node(profile: str, port: int | None = None, write: Write = write_repository) -> Iterator[Server]:
    """Run our node over a repository of its own, which ``write`` makes."""

    def command(folder: Path, base: int) -> list[str]:
        flags = [f"--{name}-port={base + offset}" for offset, name in enumerate(("http", "grpc", "metrics"))]
        flags += [f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")]
        return [sys.executable, "-m", "serving_node", f"--model-repository={folder}", *flags, *_ONLY_NODE]

    with _running(profile, port, write, command) as server:
        yield server


@contextlib.contextmanager
def _running(profile: str, port: int | None, write: Write, command: object) -> Iterator[Server]:
    place = Path(tempfile.mkdtemp(prefix="differential-"))
    folder, log = place / "repository", place / "log"
    write(folder, profile)
    base = port or held_ports(3)
    with log.open("wb") as output:
        arguments = [*command(folder, base), *_FLAGS[profile]]  # type: ignore[operator]
        # what Python caches beside a model would count as a change of the model
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(arguments, stdout=output, stderr=output, env=environment)
    server = Server(base, folder, process, log)
    try:
        _wait_until_live(server)
        yield server
    finally:
        _end(process)
        shutil.rmtree(place, ignore_errors=True)


def _wait_until_live(server: Server) -> None:
    end = time.monotonic() + _READY_SECONDS
    url = f"http://127.0.0.1:{server.port}/v2/health/live"
    while time.monotonic() < end and server.is_alive():
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{server.log.read_text(errors='replace')[:3000]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
