"""A real Celery worker and a real beat over real PostgreSQL and Valkey: one is killed in the middle."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction

from registry.models import Operation, RegisteredModel, Transition
from tests.workers import factories
from tests.workers.checks import onnx_models as models

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.integration]

WAIT_SECONDS = 90.0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


class Processes:
    """Starts the background's processes on the test's database; kills what is left at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        database = django_settings.DATABASES["default"]
        url = "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**database)
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "DATABASE_URL": url,
            "REDIS_URL": django_settings.REDIS_URL,
            "FLOTILLA_DATA_DIR": str(self._folder),
            "FLOTILLA_OPERATION_LEASE_SECONDS": "3",
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "workers.celery", *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._running.append(process)
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        self._running.remove(process)

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-4000:]}" for path in self._folder.glob("*.log"))

    def stop(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)


@pytest.fixture
def processes(tmp_path: Path, settings: Any) -> Iterator[Processes]:
    settings.STAGING_DIR = tmp_path / "staging"
    settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").as_uri()
    started = Processes(tmp_path)
    yield started
    started.stop()


def wait_for(condition: Callable[[], bool], processes: Processes) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, processes.logs()
        time.sleep(0.1)


def start_worker(processes: Processes, name: str) -> subprocess.Popen[bytes]:
    return processes.start(name, "worker", "-Q", "control,interactive,jobs", "-c", "1", "-n", f"{name}@%h")


def test_a_killed_worker_loses_nothing_and_does_nothing_twice(processes: Processes) -> None:
    version = factories.make_version(factories.make_model(), {"model.onnx": models.linear().SerializeToString()})
    operation = factories.make_operation(version)

    def state() -> str:
        return Operation.objects.values_list("state", flat=True).get(pk=operation.pk)

    def waits_for_lock() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            row = cursor.fetchone()
        return bool(row and row[0])

    processes.start("beat", "beat")
    first = start_worker(processes, "first")
    with transaction.atomic():
        # Accepting locks the model's row: the worker stops there, in the middle of its work.
        RegisteredModel.objects.select_for_update().get(pk=version.model_id)
        wait_for(lambda: state() == "running" and waits_for_lock(), processes)
        processes.kill(first)
    start_worker(processes, "second")
    wait_for(lambda: state() == "succeeded", processes)
    version.refresh_from_db()
    operation.refresh_from_db()
    assert (version.state, version.number, operation.attempts) == ("ready", 1, 2)
    moves = Transition.objects.filter(object_id=version.pk, to_state="ready")
    assert moves.count() == 1
