"""The whole way of content with the store in a folder and in S3 (moto's server): sent, checked, read, collected."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.core.management import call_command
from django.utils import timezone
from moto.server import ThreadedMotoServer

from flotilla.sdk import Flotilla
from registry.domain.plans import DeploymentSpec
from registry.models import Blob, ModelVersion
from registry.services import blobs, deployments
from registry.storage import artifact_store, storage_key
from tests.console.conftest import Cast, RunningConsole, join_node
from tests.workers.checks.onnx_models import linear
from workers.tasks import tidying
from workers.tasks.operations import work_on

CONTENT = linear().SerializeToString()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ORPHAN = b"what nobody knows"
ORPHAN_SHA256 = hashlib.sha256(ORPHAN).hexdigest()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what kind of store the installation has now."""
    kind: str = request.param
    if kind == "s3":
        endpoint = request.getfixturevalue("s3")
        bucket = f"b{abs(hash(request.node.name))}"
        answer = httpx2.put(f"{endpoint}/{bucket}", trust_env=False)
        assert answer.status_code == 200, answer.text
        for name, value in {
            "AWS_ENDPOINT": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        settings.ARTIFACT_STORE_URL = f"s3://{bucket}"
    return kind


def push(console: RunningConsole, cast: Cast, tmp_path: Path) -> ModelVersion:
    """Push a version with the SDK, let a worker check it, and return it."""
    file = tmp_path / "model.onnx"
    file.write_bytes(CONTENT)
    with Flotilla(console.url, cast.token("bob"), project="wren") as client:
        version, operation = client.upload("finch", {"model.onnx": file})
    work_on(operation["id"])
    return ModelVersion.objects.get(pk=version["id"])


def keep_orphan(tmp_path: Path) -> None:
    file = tmp_path / "orphan"
    file.write_bytes(ORPHAN)
    artifact_store().put_file(file, ORPHAN_SHA256)


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("collect_blobs", *arguments, stdout=out)
    return out.getvalue().strip()


def test_node_and_people_read_what_was_pushed(
    store: str, console: RunningConsole, shared_cast: Cast, tmp_path: Path
) -> None:
    version = push(console, shared_cast, tmp_path)
    assert (version.state, version.number) == ("ready", 1)
    fleet = shared_cast.environment("development", approvals=0)
    _node, token = join_node(shared_cast, environment="development")
    spec = DeploymentSpec.from_json({"routes": [{"version": 1, "weight": 100}]})
    deployments.deployment_change(model=version.model, fleet=fleet, spec=spec, actor=shared_cast.actor("bob"))
    for reader_token in (token, shared_cast.token("vera", "read")):
        with console.client(reader_token) as reader:
            answer = reader.get(f"/api/v1/blobs/{SHA256}", headers={"Range": "bytes=5-24"})
            if store == "s3":
                assert answer.status_code == 307
                address = answer.headers["Location"]
                assert storage_key(SHA256) in address
                assert "Signature=" in address
                answer = httpx2.get(address, headers={"Range": "bytes=5-24"}, trust_env=False, timeout=30)
                assert httpx2.get(address, trust_env=False, timeout=30).content == CONTENT
        assert (answer.status_code, answer.content) == (206, CONTENT[5:25])


def test_content_is_collected_after_its_time_and_orphans_with_it(
    store: str, console: RunningConsole, shared_cast: Cast, tmp_path: Path, settings: Any
) -> None:
    version = push(console, shared_cast, tmp_path)
    keep_orphan(tmp_path)
    settings.BLOB_GRACE_HOURS = 3
    now = timezone.now()
    part = int(ORPHAN_SHA256[:2], 16)
    soon, later = now + timedelta(hours=2, minutes=59), now + timedelta(hours=3, minutes=1)
    assert blobs.orphans_collect(soon, part) == 0
    assert [one.size for one in blobs.orphans_find(later, part)] == [len(ORPHAN)]
    assert blobs.orphans_collect(later, part) == 1
    assert blobs.orphans_collect(later, part) == 0
    assert not artifact_store().exists(ORPHAN_SHA256)
    # A version holds it: neither as a blob nor as an object of the store is it touched.
    assert blobs.blobs_collect(later) == 0
    assert blobs.orphans_collect(later, int(SHA256[:2], 16)) == 0
    version.files.all().delete()
    assert blobs.blobs_collect(soon) == 0
    assert blobs.blobs_collect(later) == 1
    assert not artifact_store().exists(SHA256)
    assert not Blob.objects.exists()


def test_command_counts_first(
    store: str, db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    keep_orphan(tmp_path)
    assert command("--dry-run") == "0 blobs (0 bytes) and 0 orphans (0 bytes) would be deleted"
    later = timezone.now() + timedelta(days=2)
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert command("--dry-run") == f"0 blobs (0 bytes) and 1 orphans ({len(ORPHAN)} bytes) would be deleted"
    assert artifact_store().exists(ORPHAN_SHA256)
    assert command() == "0 blobs and 1 orphans deleted"
    assert command() == "0 blobs and 0 orphans deleted"
    assert not artifact_store().exists(ORPHAN_SHA256)


def test_every_part_has_its_turn_in_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    monkeypatch.setattr(blobs, "orphans_collect", lambda _now, part: seen.add(part))
    start = timezone.now()
    for minutes in range(0, 24 * 60, 5):
        tidying.STEPS["orphans_collect"](start + timedelta(minutes=minutes))
    assert seen == set(range(256))


def test_what_is_kept_while_it_is_swept_stays(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_orphan(tmp_path)
    kept: list[Blob] = []
    keeping = threading.Thread(target=lambda: kept.append(keep_and_close(tmp_path / "orphan")))
    store = type(artifact_store())
    delete = store.delete

    def delete_meanwhile(self: Any, sha256: str) -> None:
        # Its row is not there for the other one, who now waits for ours or comes after it.
        keeping.start()
        delete(self, sha256)

    monkeypatch.setattr(store, "delete", delete_meanwhile)
    later = timezone.now() + timedelta(days=2)
    assert blobs.orphans_collect(later, int(ORPHAN_SHA256[:2], 16)) == 1
    keeping.join(30)
    assert [blob.sha256 for blob in kept] == [ORPHAN_SHA256]
    assert Blob.objects.get().size == len(ORPHAN)
    assert artifact_store().exists(ORPHAN_SHA256)


def keep_and_close(path: Path) -> Blob:
    from django.db import connection

    try:
        return blobs.blob_keep(path)
    finally:
        connection.close()
