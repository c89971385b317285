"""Pytest plugin: without DATABASE_URL and REDIS_URL, tests run on the embedded servers in a temporary folder.

Addresses are chosen when the plugin is imported, because Django reads its settings before any hook of ours runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from flotilla.embedded import postgres, valkey
from flotilla.up import health
from tests.ports import held_port

_START_SECONDS = 120
_REDIS_DATABASES = 16
_servers: list[subprocess.Popen[bytes]] = []
_folder: Path | None = None
_is_ours = "DATABASE_URL" not in os.environ

if _is_ours:
    _folder = Path(tempfile.mkdtemp(prefix="flotilla-tests-"))
    _ports = (held_port(), held_port())
    os.environ["DATABASE_URL"] = f"postgres://flotilla:tests@127.0.0.1:{_ports[0]}/postgres"
    os.environ["REDIS_URL"] = f"redis://:tests@127.0.0.1:{_ports[1]}/0"

# Most tests make versions for other reasons; what is checked in the sandbox has tests of its own, which switch it on.
os.environ.setdefault("FLOTILLA_SANDBOX", "0")

# Parallel test processes share the servers, so each has a database of its own: of PostgreSQL by pytest-django.
_process = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
if _process and "REDIS_URL" in os.environ:
    _address = urlsplit(os.environ["REDIS_URL"])
    _number = (int(_address.path.strip("/") or 0) + int(_process)) % _REDIS_DATABASES
    os.environ["REDIS_URL"] = urlunsplit(_address._replace(path=f"/{_number}"))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)


def _wait(is_healthy: health.HealthGate) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not asyncio.run(is_healthy()):
        if time.monotonic() > deadline:
            raise pytest.UsageError(f"the embedded servers did not start; see {_folder}")
        time.sleep(0.05)


def pytest_configure(config: pytest.Config) -> None:
    """Start both servers, once for all xdist workers."""
    if not _is_ours or hasattr(config, "workerinput") or config.option.collectonly:
        return
    assert _folder is not None
    _folder.chmod(0o755)
    cluster = postgres.prepare(_folder, _ports[0], "tests")
    store = valkey.prepare(_folder, _ports[1], "tests")
    fast = ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
    with (_folder / "servers.log").open("wb") as log:
        _servers.append(
            subprocess.Popen(
                [*cluster.command, *fast],
                stdout=log,
                stderr=log,
                cwd=cluster.data,
                preexec_fn=_die_with_parent,
                **postgres.privileges(cluster.user),
            )
        )
        _servers.append(subprocess.Popen(store.command, stdout=log, stderr=log, preexec_fn=_die_with_parent))
    _wait(lambda: health.accepts_postgres_start(_ports[0]))
    _wait(lambda: health.answers_ping(_ports[1], "tests"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop them and remove the folder."""
    for server in _servers:
        server.send_signal(2 if server is _servers[0] else 15)
    for server in _servers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        server.kill()
    if _folder is not None and not hasattr(config, "workerinput"):
        shutil.rmtree(_folder, ignore_errors=True)
        sys.stdout.flush()
