"""kill -9 of the web server and of the worker at each point of an upload and its first check, in real processes.

Whoever pushed pushes again, and the operation is handed out again: nothing is lost, double or stuck.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Count
from django.utils import timezone

from flotilla.sdk import ApiError, Flotilla, chunks, parts, tus
from registry.models import Blob, ModelVersion, Operation, Upload, UploadState, VersionFile
from registry.services.uploads import staging_path
from registry.storage import artifact_store
from tests.console.conftest import Cast, ConsoleProcess
from tests.workers.checks import onnx_models

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DYING = "tests.console.uploads.dying"
SESSIONS, UPLOADS = "console.uploads.sessions", "registry.services.uploads"
WEB_POINTS = [
    f"{UPLOADS}:upload_create before 1",
    f"{UPLOADS}:upload_create after 1",
    f"{SESSIONS}:take_room after 1",
    f"{SESSIONS}:create after 1",
    f"{SESSIONS}:begin after 1",
    "console.uploads.staging:StagedFile.append after 1",
    "console.uploads.staging:StagedFile.append before 3",
    f"{SESSIONS}:commit before 2",
    f"{SESSIONS}:commit after 2",
    "console.uploads.staging:StagedFile.sync after 1",
    f"{UPLOADS}:upload_received before 1",
    f"{UPLOADS}:upload_received after 1",
    f"{SESSIONS}:commit after 3",
    "registry.services.versions:version_submit before 1",
    "registry.services.versions:version_submit after 1",
]
JOINED_POINTS = [
    f"{SESSIONS}:upload_concatenate before 1",
    f"{SESSIONS}:upload_concatenate after 1",
]
WORKER_POINTS = [
    "workers.checks.validation:upload_store before 1",
    f"{UPLOADS}:digests_of after 1",
    "registry.storage:ArtifactStore.take_file before 1",
    "registry.storage:ArtifactStore.take_file after 1",
    f"{UPLOADS}:version_add_file after 1",
    f"{UPLOADS}:move after 1",
    "workers.checks.validation:upload_store after 1",
    "workers.checks.validation:version_accept before 1",
    "workers.checks.validation:version_accept after 1",
    "registry.services.operations:operation_succeed before 1",
]
JOINING_POINTS = [
    "registry.services.parts:_append before 1",
    "registry.services.parts:_append after 2",
    "registry.services.parts:join_files after 1",
    f"{UPLOADS}:parts_end after 1",
]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of three chunks."""
    content = onnx_models.linear(width=200).SerializeToString()
    monkeypatch.setattr(chunks, "FIRST_BYTES", len(content) // 3 + 1)
    monkeypatch.setattr(chunks, "MOST_BYTES", len(content) // 3 + 1)
    monkeypatch.setattr(chunks, "LEAST_BYTES", len(content) // 3 + 1)
    monkeypatch.setattr(tus, "_ATTEMPTS", 1)
    monkeypatch.setenv("FLOTILLA_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return path


def push_through_a_death(environment: dict[str, str], token: str, file: Path, point: str) -> None:
    """Push until it is done; the first server dies at the point, and a sound one takes its place."""
    server = ConsoleProcess({**environment, "FLOTILLA_TEST_DIE_AT": point}, f"{DYING}:application")
    server.start()
    deaths: list[int] = []

    def replace() -> None:
        deaths.append(server.wait(120))
        server.environment = environment
        server.start()

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        for _attempt in range(5):
            with Flotilla(server.url, token, project="wren") as client, contextlib.suppress(ApiError):
                with client.push_record("finch", {"model.onnx": file}) as record:
                    client.upload("finch", {"model.onnx": file}, record=record)
                break
            replacing.join(120)
        replacing.join(120)
    finally:
        server.stop()
    assert deaths == [-9], f"it did not die at {point}"


def work(environment: dict[str, str], point: str = "") -> int:
    """Let a worker process work on the operation, whoever worked on it before being dead; return its status."""
    operation = Operation.objects.get(kind="validate_version")
    Operation.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    command = [sys.executable, "-m", DYING, str(operation.pk)]
    return subprocess.run(
        command, env={**environment, "FLOTILLA_TEST_DIE_AT": point, "FLOTILLA_SANDBOX": "0"}, timeout=300
    ).returncode


def require_one_good_version(file: Path) -> None:
    version = ModelVersion.objects.exclude(state="abandoned").get()
    assert (version.state, version.number) == ("ready", 1), version.state_reason
    held = VersionFile.objects.get(version=version)
    assert (held.path, held.blob.sha256) == ("model.onnx", hashlib.sha256(file.read_bytes()).hexdigest())
    assert b"".join(artifact_store().open_range(held.blob.sha256)) == file.read_bytes()
    assert Blob.objects.count() == 1
    assert Operation.objects.get(kind="validate_version").state == "succeeded"
    states = dict(Upload.objects.values_list("state").annotate(Count("pk")))
    assert set(states) <= {UploadState.STORED, UploadState.TERMINATED}, states
    assert Upload.objects.filter(state=UploadState.STORED, is_part=False).count() == 1


def require_nothing_left() -> None:
    folder = staging_path(Upload.objects.first().pk).parent  # type: ignore[union-attr]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("point", WEB_POINTS)
def test_web_server_is_killed(process_environment: dict[str, str], shared_cast: Cast, file: Path, point: str) -> None:
    push_through_a_death(process_environment, shared_cast.token("bob"), file, point)
    assert work(process_environment) == 0
    require_one_good_version(file)
    require_nothing_left()


@pytest.mark.parametrize("point", JOINED_POINTS)
def test_web_server_is_killed_while_parts_are_named(
    process_environment: dict[str, str], shared_cast: Cast, file: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(parts, "LEAST_BYTES", 1)
    push_through_a_death(process_environment, shared_cast.token("bob"), file, point)
    assert work(process_environment) == 0
    require_one_good_version(file)
    require_nothing_left()


@pytest.mark.parametrize("point", WORKER_POINTS + JOINING_POINTS)
def test_worker_is_killed(
    console: Any,
    process_environment: dict[str, str],
    shared_cast: Cast,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    if point in JOINING_POINTS:
        monkeypatch.setattr(parts, "LEAST_BYTES", 1)
    with Flotilla(console.url, shared_cast.token("bob"), project="wren") as client:
        client.upload("finch", {"model.onnx": file})
    if "digests_of" in point:  # As after a restart of the web server: the worker has to read the bytes.
        Upload.objects.update(sha256="")
    assert work(process_environment, point) == -9, f"it did not die at {point}"
    assert work(process_environment) == 0
    require_one_good_version(file)
    require_nothing_left()
