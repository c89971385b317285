"""The SDK's uploads against the web server: several at once, only what is missing, whatever the connection does."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from console.middleware.pace import TooSlow
from console.uploads import reception
from console.uploads.protocol import ProtocolError
from flotilla.sdk import ApiError, Flotilla, chunks, parts, tus
from flotilla.sdk.push_record import PushRecord
from flotilla.sdk.upload import files_there, upload_file
from registry.models import ModelVersion, Upload, UploadState, VersionFile
from registry.services.uploads import staging_path, upload_store
from tests.console.conftest import Cast, RunningConsole


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Files of several chunks; the last chunk of each is short."""
    monkeypatch.setattr(chunks, "FIRST_BYTES", 100_000)
    monkeypatch.setattr(chunks, "MOST_BYTES", 100_000)
    found = {}
    for name in ("model.onnx", "weights/a.bin", "weights/b.bin", "weights/c.bin"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(250_000 + len(found)))
        found[name] = path
    return found


def bob(console: RunningConsole, cast: Cast) -> Flotilla:
    return Flotilla(console.url, cast.token("bob"), project="wren")


def test_only_what_is_missing_is_sent(console: RunningConsole, shared_cast: Cast, files: dict[str, Path]) -> None:
    told: dict[str, int] = {}
    with bob(console, shared_cast) as client:
        client.upload("finch", files, progress=lambda path, sent, _total: told.__setitem__(path, sent))
        assert told == {path: file.stat().st_size for path, file in files.items()}
        for upload in Upload.objects.all():
            assert staging_path(upload.pk).read_bytes() == files[upload.path].read_bytes()
            assert upload.sha256
            upload_store(upload_id=upload.pk)
        Upload.objects.all().delete()
        # The same but for one file, which has the same size.
        files["model.onnx"].write_bytes(os.urandom(250_000))
        version, _operation = client.upload("finch", files)
    assert [upload.path for upload in Upload.objects.all()] == ["model.onnx"]
    attached = VersionFile.objects.filter(version_id=version["id"]).values_list("path", flat=True)
    assert sorted(attached) == sorted(set(files) - {"model.onnx"})


def test_sizes_in_projects_of_others_are_not_told(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path]
) -> None:
    shared_cast.store_file(shared_cast.version(), "model.onnx", files["model.onnx"].read_bytes())
    with Flotilla(console.url, shared_cast.token("charlie"), project="elsewhere") as client:
        client.upload("owl", files)
    assert Upload.objects.filter(owner=shared_cast.charlie).count() == len(files)


def test_sender_that_fell_asleep_goes_on_from_what_arrived(
    console: RunningConsole, shared_cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a laptop that is closed in the middle of a long request."""
    refused: list[str] = []
    is_refused = threading.Event()

    def refuse(error: TooSlow) -> ProtocolError:
        refused.append(error.code)
        is_refused.set()
        return ProtocolError(408, "Asleep.", error.code)

    def fall_asleep(_path: str, sent: int, total: int) -> None:
        if 0 < sent < total and not refused:
            assert is_refused.wait(60)

    monkeypatch.setattr(reception, "WINDOW_SECONDS", 0.5)
    monkeypatch.setattr(reception, "_request_timeout", refuse)
    file = tmp_path / "model.onnx"
    file.write_bytes(os.urandom(20 << 20))
    with bob(console, shared_cast) as client:
        client.upload("finch", {"model.onnx": file}, progress=fall_asleep)
    assert refused[0] == "idle"
    assert staging_path(Upload.objects.get().pk).read_bytes() == file.read_bytes()


def test_chunk_that_a_server_lost_is_read_and_sent_again(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path]
) -> None:
    def lose(_path: str, sent: int, _total: int) -> None:
        if sent == 200_000 and not lost:
            lost.append(True)
            os.truncate(staging_path(Upload.objects.get().pk), 50_000)

    lost: list[bool] = []
    with bob(console, shared_cast) as client:
        client.upload("finch", {"model.onnx": files["model.onnx"]}, progress=lose)
    upload = Upload.objects.get()
    assert lost
    assert staging_path(upload.pk).read_bytes() == files["model.onnx"].read_bytes()
    assert upload.state == UploadState.RECEIVED


def test_bytes_that_were_damaged_on_the_way_are_found_and_all_are_sent_again(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    send, damaged = tus._send_chunk, []

    def damage_first(transport: Any, location: str, chunk: Any) -> int:
        if not damaged:
            damaged.append(location)
            chunk = dataclasses.replace(chunk, content=lambda: iter([b"x" * chunk.length]))
        return send(transport, location, chunk)

    monkeypatch.setattr(tus, "_send_chunk", damage_first)
    with bob(console, shared_cast) as client:
        client.upload("finch", {"model.onnx": files["model.onnx"]})
    given_up, upload = Upload.objects.order_by("created_at")
    assert (given_up.state, upload.state) == (UploadState.TERMINATED, UploadState.RECEIVED)
    assert staging_path(upload.pk).read_bytes() == files["model.onnx"].read_bytes()


def test_proxy_that_takes_short_bodies_only_gets_them(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    send, lengths = tus._send_chunk, []

    def refuse_long(transport: Any, location: str, chunk: Any) -> int:
        if chunk.length > 30_000:
            raise ApiError(413, "http_error", "Request Entity Too Large")
        lengths.append(chunk.length)
        return send(transport, location, chunk)

    monkeypatch.setattr(chunks, "LEAST_BYTES", 1000)
    monkeypatch.setattr(tus, "_send_chunk", refuse_long)
    monkeypatch.setattr(tus.time, "sleep", lambda _seconds: None)
    with bob(console, shared_cast) as client:
        client.upload("finch", {"model.onnx": files["model.onnx"]})
    assert sum(lengths) == 250_000
    assert staging_path(Upload.objects.get().pk).read_bytes() == files["model.onnx"].read_bytes()


def test_refusal_of_one_stops_the_others(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path], tmp_path: Path
) -> None:
    names: dict[str, Any] = {"../outside": files["model.onnx"], **files}
    with bob(console, shared_cast) as client, pytest.raises(ApiError):
        client.upload("finch", names)
    assert ModelVersion.objects.get().state == "uploading"


@pytest.fixture
def large(tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that goes in parts, with the chunks of ``files``."""
    monkeypatch.setattr(parts, "LEAST_BYTES", 500_000)
    file = tmp_path / "large.bin"
    file.write_bytes(os.urandom(1_000_003))
    return file


def whole() -> Upload:
    return Upload.objects.get(is_part=False)


def test_large_file_goes_in_parts_and_is_joined(console: RunningConsole, shared_cast: Cast, large: Path) -> None:
    told: list[tuple[int, int]] = []
    with bob(console, shared_cast) as client:
        client.upload("finch", {"large.bin": large}, progress=lambda _path, *sent: told.append(sent))
    assert told[-1] == (1_000_003, 1_000_003)
    assert whole().parts.count() == 4
    blob = upload_store(upload_id=whole().pk)
    assert (blob.sha256, blob.size) == (hashlib.sha256(large.read_bytes()).hexdigest(), 1_000_003)


class Stopped(Exception):
    """Somebody pressed Ctrl-C."""


@pytest.mark.parametrize("size", [1_000_003, 900_000])
def test_parts_that_are_there_are_not_sent_again_unless_the_file_is_another(
    console: RunningConsole, shared_cast: Cast, large: Path, size: int
) -> None:
    def stop(_path: str, sent: int, _total: int) -> None:
        if sent >= 300_000:
            raise Stopped

    with bob(console, shared_cast) as client:
        record = PushRecord()
        with pytest.raises(Stopped):
            client.upload("finch", {"large.bin": large}, progress=stop, record=record)
        before = set(Upload.objects.values_list("pk", flat=True))
        large.write_bytes(large.read_bytes()[:size])
        version = f"projects/wren/models/finch/versions/{ModelVersion.objects.get().pk}/"
        there = files_there(client._transport, version)["large.bin"]
        assert (there.is_whole, there.offset >= 300_000) == (False, True)
        upload_file(
            client._transport,
            version=version,
            version_id=str(ModelVersion.objects.get().pk),
            path="large.bin",
            file=large,
            begun=there,
        )
    used = set(whole().parts.values_list("pk", flat=True))
    assert (before <= used) == (size == 1_000_003)
    assert upload_store(upload_id=whole().pk).sha256 == hashlib.sha256(large.read_bytes()).hexdigest()
