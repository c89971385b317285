"""Files in parts, straight to an object store (moto's S3): by the SDK, and by clients that do it wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import obstore
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer
from obstore.store import from_url

from flotilla.sdk import ApiError, Flotilla
from flotilla.sdk import direct_upload as sdk_direct
from registry.domain import parts
from registry.errors import ValidationFailed
from registry.models import Blob, ModelVersion, Upload
from registry.services import direct_uploads
from registry.services.uploads import staging_path, upload_store, uploads_expire
from registry.storage import ArtifactStore, artifact_store
from tests.console.conftest import Cast, RunningConsole
from tests.workers.checks.onnx_models import linear
from workers.tasks.operations import work_on

MIB = 1 << 20
Call = Callable[..., httpx2.Response]


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(request: pytest.FixtureRequest, moto: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the installation keep its content in an S3 bucket; return the bucket as a store."""
    name = "d" + hashlib.sha256(request.node.name.encode()).hexdigest()[:20]
    assert httpx2.put(f"{moto}/{name}", trust_env=False).status_code == 200
    for key, value in {
        "AWS_ENDPOINT": moto,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(key, value)
    settings.ARTIFACT_STORE_URL = f"s3://{name}"
    monkeypatch.setattr(parts, "LEAST_BYTES", MIB)
    monkeypatch.setattr(sdk_direct, "_LEAST_BYTES", 0)
    return from_url(settings.ARTIFACT_STORE_URL)


def staged(bucket: Any) -> list[str]:
    return sorted(one["path"].rpartition("/")[2] for page in obstore.list(bucket, "staging") for one in page)


def bob(console: RunningConsole, cast: Cast) -> Flotilla:
    return Flotilla(console.url, cast.token("bob"), project="wren")


def large(tmp_path: Path, size: int = 5 * MIB + 12345) -> Path:
    file = tmp_path / "weights.bin"
    file.write_bytes(os.urandom(size))
    return file


def test_parts_become_a_file_of_a_checked_version(
    bucket: Any, console: RunningConsole, shared_cast: Cast, tmp_path: Path
) -> None:
    model, labels = tmp_path / "model.onnx", large(tmp_path)
    model.write_bytes(linear().SerializeToString())
    told: list[int] = []
    with bob(console, shared_cast) as client:
        version, operation = client.upload(
            "finch",
            {"model.onnx": model, "labels.bin": labels},
            progress=lambda path, sent, _total: told.append(sent) if path == "labels.bin" else None,
        )
    upload = Upload.objects.get(path="labels.bin")
    assert (upload.state, upload.part_bytes, upload.offset) == ("received", MIB, upload.length)
    assert not staging_path(upload.pk).exists()
    assert told[0] == 0 and told[-1] == labels.stat().st_size and told == sorted(told)
    work_on(operation["id"])
    ready = ModelVersion.objects.get(pk=version["id"])
    assert (ready.state, ready.number) == ("ready", 1)
    content = labels.read_bytes()
    blob = Blob.objects.get(size=len(content))
    assert blob.sha256 == hashlib.sha256(content).hexdigest()
    assert b"".join(artifact_store().open_range(blob.sha256)) == content
    assert staged(bucket) == []


def test_cut_push_sends_only_the_parts_that_are_missing(
    bucket: Any,
    console: RunningConsole,
    shared_cast: Cast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Cut(Exception):
        pass

    def cut(_path: str, sent: int, _total: int) -> None:
        if sent >= 2 * MIB:
            raise Cut

    monkeypatch.setenv("FLOTILLA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sdk_direct, "_PARTS_AT_ONCE", 1)
    files = {"weights.bin": large(tmp_path)}
    with bob(console, shared_cast) as client, client.push_record("finch", files) as record, pytest.raises(Cut):
        client.upload("finch", files, record=record, progress=cut)
    assert staged(bucket) == ["00001", "00002"]
    told: list[int] = []
    with bob(console, shared_cast) as client, client.push_record("finch", files) as record:
        version, _operation = client.upload(
            "finch", files, record=record, progress=lambda _path, sent, _total: told.append(sent)
        )
    assert str(ModelVersion.objects.get().pk) == version["id"]
    # One after the other from the third part on, and the last, short one.
    assert told[1:] == [3 * MIB, 4 * MIB, 5 * MIB, 5 * MIB + 12345]
    upload_store(upload_id=Upload.objects.get().pk)
    assert Blob.objects.get().sha256 == hashlib.sha256(files["weights.bin"].read_bytes()).hexdigest()


@pytest.mark.parametrize("why", ["switched off", "local folder", "store out of reach"])
def test_without_a_store_that_can_be_reached_tus_does_it(
    bucket: Any,
    console: RunningConsole,
    shared_cast: Cast,
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
) -> None:
    if why == "switched off":
        settings.DIRECT_UPLOADS = False
    elif why == "local folder":
        settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").as_uri()
    else:
        monkeypatch.setattr(sdk_direct.time, "sleep", lambda _seconds: None)
        sign = type(artifact_store()).sign_part
        monkeypatch.setattr(
            type(artifact_store()),
            "sign_part",
            lambda self, *args, **more: sign(self, *args, **more) and "http://127.0.0.1:1/nobody",
        )
    file = large(tmp_path, 300_000)
    with bob(console, shared_cast) as client:
        client.upload("finch", {"weights.bin": file})
    upload = Upload.objects.get(state="received")
    assert upload.part_bytes == 0
    assert staging_path(upload.pk).read_bytes() == file.read_bytes()


@pytest.fixture
def begun(bucket: Any, console: RunningConsole, shared_cast: Cast) -> Iterator[tuple[Call, str]]:
    """Bob's upload of 2.5 MiB in parts, and how he calls below its version."""
    version = shared_cast.version()
    base = f"/api/v1/projects/wren/models/finch/versions/{version.pk}/uploads/"
    with console.client(shared_cast.token("bob")) as client:

        def call(method: str, path: str, body: Any = None) -> httpx2.Response:
            return client.request(method, path if path.startswith("/") else f"{base}{path}", json=body)

        created = call("POST", "", {"path": "weights.bin", "length": 5 * MIB // 2})
        assert created.status_code == 201
        assert created.json()["part_bytes"] == MIB
        yield call, created.json()["id"]


CONTENT = [b"a" * MIB, b"b" * MIB, b"c" * (MIB // 2)]
SHA256 = hashlib.sha256(b"".join(CONTENT)).hexdigest()


def put(call: Call, upload: str, contents: dict[int, bytes]) -> None:
    signed = call("POST", f"{upload}/parts", {"numbers": list(contents)}).json()["parts"]
    assert [part["number"] for part in signed] == sorted(contents)
    for part in signed:
        answer = httpx2.put(part["url"], content=contents[part["number"]], headers=part["headers"], trust_env=False)
        assert answer.status_code == 200


def test_missing_parts_and_those_of_another_size_are_named(begun: tuple[Call, str]) -> None:
    call, upload = begun
    put(call, upload, {1: CONTENT[0], 2: b"short"})
    assert call("GET", f"{upload}/parts").json() == {"part_bytes": MIB, "count": 3, "present": [1]}
    refused = call("POST", f"{upload}/complete", {"sha256": SHA256})
    assert refused.status_code in (400, 422)
    assert [one["field"] for one in refused.json()["errors"]] == ["parts.2", "parts.3"]
    put(call, upload, {2: CONTENT[1], 3: CONTENT[2]})
    for _again in range(2):
        done = call("POST", f"{upload}/complete", {"sha256": SHA256})
        assert (done.status_code, done.json()["state"]) == (200, "received")
    assert upload_store(upload_id=Upload.objects.get().pk).sha256 == SHA256
    assert upload_store(upload_id=Upload.objects.get().pk).sha256 == SHA256


def test_another_digest_than_promised_fails_and_nothing_is_kept(begun: tuple[Call, str], bucket: Any) -> None:
    call, upload = begun
    put(call, upload, dict(enumerate(CONTENT, 1)))
    promised = hashlib.sha256(b"something else").hexdigest()
    assert call("POST", f"{upload}/complete", {"sha256": promised}).status_code == 200
    with pytest.raises(ValidationFailed, match="damaged on the way"):
        upload_store(upload_id=Upload.objects.get().pk)
    assert Upload.objects.get().state == "failed"
    assert not Blob.objects.exists()
    assert [one["path"] for page in obstore.list(bucket, "blobs") for one in page] == []
    assert direct_uploads.parts_collect(timezone.now()) == 3
    assert staged(bucket) == []


def test_part_that_is_exchanged_after_the_end_is_noticed(begun: tuple[Call, str], bucket: Any) -> None:
    call, upload = begun
    put(call, upload, dict(enumerate(CONTENT, 1)))
    signed = call("POST", f"{upload}/parts", {"numbers": [2]}).json()["parts"][0]
    assert call("POST", f"{upload}/complete", {"sha256": SHA256}).status_code == 200
    assert httpx2.put(signed["url"], content=b"x" * MIB, trust_env=False).status_code == 200
    with pytest.raises(ValidationFailed):
        upload_store(upload_id=Upload.objects.get().pk)
    assert not artifact_store().exists(SHA256)


def test_content_that_is_there_already_is_compared_all_the_same(begun: tuple[Call, str], bucket: Any) -> None:
    call, upload = begun
    put(call, upload, {1: CONTENT[0], 2: CONTENT[1], 3: b"x" * (MIB // 2)})
    obstore.put(bucket, f"blobs/{SHA256[:2]}/{SHA256}", b"".join(CONTENT))
    assert call("POST", f"{upload}/complete", {"sha256": SHA256}).status_code == 200
    with pytest.raises(ValidationFailed):
        upload_store(upload_id=Upload.objects.get().pk)
    assert not Blob.objects.exists()


def test_numbers_out_of_range_and_ends_are_refused(begun: tuple[Call, str], console: RunningConsole) -> None:
    call, upload = begun
    assert call("POST", f"{upload}/parts", {"numbers": [4]}).status_code in (400, 422)
    assert call("POST", f"{upload}/parts", {"numbers": [0]}).status_code in (400, 422)
    assert call("POST", f"{upload}/parts", {"numbers": list(range(1, 102))}).status_code in (400, 422)
    tus = {"Tus-Resumable": "1.0.0"}
    with console.client() as client:
        token = {"Authorization": "Bearer none"}
        assert client.delete(f"/api/v1/uploads/{upload}", headers={**tus, **token}).status_code == 401
    ended = uploads_expire(timezone.now() + timedelta(days=2))
    assert ended == 1
    assert call("POST", f"{upload}/parts", {"numbers": [1]}).status_code == 409
    assert call("POST", f"{upload}/complete", {"sha256": SHA256}).status_code == 409


def test_tus_neither_writes_to_it_nor_is_it_seen_by_others(
    begun: tuple[Call, str], console: RunningConsole, shared_cast: Cast
) -> None:
    call, upload = begun
    chunk = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream", "Tus-Resumable": "1.0.0"}
    with console.client(shared_cast.token("bob")) as client:
        refused = client.patch(f"/api/v1/uploads/{upload}", content=b"x", headers=chunk)
        assert (refused.status_code, refused.json()["code"]) == (409, "upload_in_parts")
    base = call("GET", "").request.url.path
    with console.client(shared_cast.token("alice")) as client:
        assert client.get(f"{base}{upload}/parts").status_code == 404
    with console.client(shared_cast.token("bob")) as client:
        tus = {"Tus-Resumable": "1.0.0"}
        assert client.delete(f"/api/v1/uploads/{upload}", headers=tus).status_code == 204
    assert Upload.objects.get().state == "terminated"


def test_late_parts_are_collected_and_those_under_way_are_not(begun: tuple[Call, str], bucket: Any) -> None:
    call, upload = begun
    put(call, upload, {1: CONTENT[0]})
    obstore.put(bucket, "staging/00000000-0000-0000-0000-000000000000/00001", b"nobody's")
    obstore.put(bucket, "staging/other/readme", b"not ours")
    assert direct_uploads.parts_collect(timezone.now()) == 1
    assert staged(bucket) == ["00001", "readme"]
    Upload.objects.all().delete()
    assert direct_uploads.parts_collect(timezone.now()) == 1
    assert staged(bucket) == ["readme"]


def test_refusals_of_tus_are_those_of_parts(
    bucket: Any, console: RunningConsole, shared_cast: Cast, tmp_path: Path
) -> None:
    file = large(tmp_path, MIB)
    with bob(console, shared_cast) as client, pytest.raises(ApiError) as refused:
        client.upload("finch", {"../outside": file})
    assert refused.value.status in (400, 422)


def test_addresses_of_other_stores_are_signed_without_asking_them(monkeypatch: pytest.MonkeyPatch) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"private_key": pem, "private_key_id": "i", "client_email": "a@example.com", "client_id": "1"}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"k" * 32).decode())
    upload = uuid.UUID(int=7)
    azure, google = ArtifactStore("az://container"), ArtifactStore("gs://bucket")
    signed = azure.sign_part(upload, 3, seconds=60) or ""
    assert signed.startswith(f"https://account.blob.core.windows.net/container/staging/{upload}/00003?")
    assert "sp=w&" in signed and azure.part_headers == {"x-ms-blob-type": "BlockBlob"}
    signed = google.sign_part(upload, 3, seconds=60) or ""
    assert signed.startswith(f"https://storage.googleapis.com/bucket/staging/{upload}/00003?")
    assert "X-Goog-Expires=60" in signed and google.part_headers == {}


@given(st.integers(1, 10**15))
def test_parts_cover_a_file_once(length: int) -> None:
    size = parts.part_size(length)
    sizes = parts.part_sizes(length, size)
    assert sum(sizes) == length
    assert len(sizes) == parts.part_count(length, size) <= parts.MOST_PARTS
    assert all(one == size for one in sizes[:-1])
    assert 0 < sizes[-1] <= size >= parts.LEAST_BYTES
