"""MLflow's tracking server as a peer: an environment of its own, its defaults, and as many rows as we hold."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx2

from benchmarks.volume import Volume

VERSION = "3.17.2"
_START_SECONDS = 180


def _environment() -> Path:
    """Return the folder of an environment that has MLflow, made at the first call (minutes)."""
    folder = Path.home() / ".cache" / "flotilla-benchmarks" / f"mlflow-{VERSION}"
    if not (folder / "complete").exists():
        print(f"  installing MLflow {VERSION} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", f"mlflow=={VERSION}"], check=True)
        (folder / "complete").touch()
    return folder


@contextlib.contextmanager
def mlflow_running(port: int, scratch: Path, volume: Volume) -> Iterator[httpx2.Client]:
    """Start the server on its default store, fill that, and yield a client."""
    store = scratch / "mlflow.db"
    command = [_environment() / "bin" / "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{store}", "--default-artifact-root", str(scratch / "artifacts")]
    # Its parent ends children that do not answer within five seconds, which starting takes on a busy machine.
    command += ["--uvicorn-opts", "--timeout-worker-healthcheck 120"]
    log = scratch / "mlflow.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=scratch, start_new_session=True)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
            _wait_until_ready(process, client, log)
            _fill(client, store, volume)
            yield client
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def _wait_until_ready(process: subprocess.Popen[bytes], client: httpx2.Client, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(httpx2.HTTPError):
            if client.get("/health").status_code == 200:
                return
        time.sleep(0.5)
    sys.exit(f"MLflow is not ready:\n{log.read_text(errors='replace')[-2000:]}")


def _fill(client: httpx2.Client, store: Path, volume: Volume) -> None:
    """Make one model and version by the API, then copy those rows; what is not named stays as MLflow wrote it."""
    print(f"  MLflow: {volume.models} models, {volume.models * volume.versions_each} versions", flush=True)
    base = "/api/2.0/mlflow/"
    client.post(f"{base}registered-models/create", json={"name": "original"}).raise_for_status()
    made = {"name": "original", "source": "s3://bucket/original"}
    client.post(f"{base}model-versions/create", json=made).raise_for_status()
    with contextlib.closing(sqlite3.connect(store, timeout=60)) as database, database:
        models = [f"volume-{number}" for number in range(1, volume.models + 1)]
        _copy(database, "registered_models", ("name",), [(name,) for name in models])
        versions = [(name, number) for name in models for number in range(1, volume.versions_each + 1)]
        _copy(database, "model_versions", ("name", "version"), versions)


def _copy(database: sqlite3.Connection, table: str, changed: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    values = ", ".join("?" if name in changed else f'"{name}"' for name in names)
    order = [name for name in names if name in changed]
    database.executemany(
        f"INSERT INTO {table} SELECT {values} FROM {table} WHERE name = 'original'",
        [tuple(row[changed.index(name)] for name in order) for row in rows],
    )
