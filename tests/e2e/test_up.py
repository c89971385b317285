"""``flotilla up``: starting, stopping, starting twice, dying."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.e2e.running import RunningFlotilla, clean_environment, is_alive, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def _pids(running: RunningFlotilla) -> dict[str, int]:
    return {name: pid for name, pid in running.run_info()["processes"].items() if pid}


def _children_of(pid: int) -> list[int]:
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def test_life_of_one_installation(own_flotilla: RunningFlotilla) -> None:
    """First login once; a second start points at the first; Ctrl-C ends all; kill -9 leaves no orphan; data stays."""
    running = own_flotilla
    running.start()
    assert running.password
    assert sum("First login" in line for line in running.output) == 1
    assert running.get(f"{running.url}/readyz") == 200
    assert running.get(f"http://127.0.0.1:{running.node_port}/v2/health/live") == 200

    for secret in (running.data_dir / "secrets").iterdir():
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600, secret
    assert not any(running.password in path.read_text() for path in (running.data_dir / "logs").iterdir())

    second = subprocess.run(
        [*running.command, "up", "--data-dir", str(running.data_dir)],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=False,
    )
    assert second.returncode != 0
    assert running.url in second.stderr

    before = _pids(running)
    assert {"postgres", "valkey", "web", "worker", "jobs", "beat", "observe", "node"} <= set(before)
    assert running.stop() == 0
    assert not [name for name, pid in before.items() if is_alive(pid)]

    running.output.clear()
    running.start()
    assert not any("First login" in line for line in running.output), "the password is shown once"
    everything = list(_pids(running).values())
    everything += [child for pid in everything for child in _children_of(pid)]
    running.kill()
    wait_until(lambda: not [pid for pid in everything if is_alive(pid)], "children end with a killed supervisor")

    running.start()
    assert running.get(f"{running.url}/readyz") == 200


def test_occupied_port_is_named(own_flotilla: RunningFlotilla) -> None:
    import socket

    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", own_flotilla.port))
        taken.listen()
        done = subprocess.run(
            [*own_flotilla.command, "up", "--port", str(own_flotilla.port), "--data-dir", str(own_flotilla.data_dir)],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
            check=False,
        )
    assert done.returncode != 0
    assert f"Port {own_flotilla.port}" in done.stderr


def test_own_database_and_broker_are_used(own_flotilla: RunningFlotilla) -> None:
    """DATABASE_URL and REDIS_URL win over the embedded servers, which are then not started."""
    server = os.environ["DATABASE_URL"]
    name = f"own_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = urlsplit(server)._replace(path=f"/{name}").geturl()
    own_flotilla.environment = {"DATABASE_URL": url, "REDIS_URL": os.environ["REDIS_URL"]}
    own_flotilla.arguments = ("--no-node",)
    own_flotilla.start()
    assert {"web", "worker", "jobs", "beat", "observe"} == set(_pids(own_flotilla))
    assert own_flotilla.get(f"{own_flotilla.url}/readyz") == 200
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT username FROM registry_user").fetchall()
    assert found == [("admin",)]
    assert own_flotilla.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="changes user")
def test_root_with_a_private_home(own_flotilla: RunningFlotilla, tmp_path: Path) -> None:
    """PostgreSQL drops to another user that can reach its data, though the folder above is closed to it."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    own_flotilla.data_dir = private / "data"
    own_flotilla.start()
    pid = own_flotilla.pid_of("postgres")
    assert pid is not None
    assert os.stat(f"/proc/{pid}").st_uid == pwd.getpwnam("nobody").pw_uid
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    own_flotilla.kill()
    wait_until(lambda: not is_alive(pid), "the parent-death signal survives the change of user")


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="every other test of this file then runs as an ordinary user")
def test_ordinary_user(own_flotilla: RunningFlotilla) -> None:
    """The same without root: in a user namespace, because another user may not reach this interpreter."""
    own_flotilla.command = ["unshare", "--user", "--map-user=65534", "--map-group=65534", *own_flotilla.command]
    own_flotilla.start()
    pid = own_flotilla.pid_of("postgres")
    assert pid is not None
    assert Path(f"/proc/{pid}/cwd").resolve() == (own_flotilla.data_dir / "postgres" / "cluster").resolve()
    assert own_flotilla.get(f"{own_flotilla.url}/readyz") == 200
