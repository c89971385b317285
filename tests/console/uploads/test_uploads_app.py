"""tus against a real uvicorn, a real database and a real disk."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.conf import settings
from django.utils import timezone
from xxhash import xxh3_128

from console.uploads import digests, protocol, reception, room, sessions
from registry.errors import ValidationFailed
from registry.models import Upload, UploadState
from registry.services import uploads
from registry.services.uploads import staging_path
from registry.storage import artifact_store
from tests.console.conftest import PASSWORD, Cast, ConsoleProcess, RunningConsole

BODY = bytes(range(256)) * 64
TUS = {"Tus-Resumable": "1.0.0"}


def metadata(**values: str) -> str:
    return ",".join(f"{key} {base64.b64encode(value.encode()).decode()}".strip() for key, value in values.items())


@pytest.fixture
def bob(console: RunningConsole, shared_cast: Cast) -> Iterator[httpx2.Client]:
    with console.client(shared_cast.token("bob"), **TUS) as client:
        yield client


def begin(client: httpx2.Client, cast: Cast, length: int = len(BODY), path: str = "model.onnx", **more: str) -> str:
    """Create an upload to a fresh version and return its address."""
    version = cast.version()
    words = metadata(version=str(version.pk), path=path, **more)
    answer = client.post("/api/v1/uploads/", headers={"Upload-Length": str(length), "Upload-Metadata": words})
    assert answer.status_code == 201, answer.text
    location: str = answer.headers["Location"]
    return location


def patch(client: httpx2.Client, location: str, offset: int, body: bytes, **headers: str) -> httpx2.Response:
    words = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream", **headers}
    return client.patch(location, headers=words, content=body)


def offset_of(client: httpx2.Client, location: str) -> int:
    answer = client.head(location)
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    return int(answer.headers["Upload-Offset"])


def row(location: str) -> Upload:
    return Upload.objects.get(pk=location.rpartition("/")[2])


def checksum(body: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, body).digest()).decode()}"


def test_options_tells_what_the_server_supports(console: RunningConsole) -> None:
    with console.client() as client:
        answer = client.options("/api/v1/uploads/")
    assert answer.status_code == 204
    assert answer.headers["Tus-Version"] == "1.0.0"
    assert set(answer.headers["Tus-Extension"].split(",")) == set(protocol.EXTENSIONS.split(","))
    assert answer.headers["Tus-Checksum-Algorithm"] == "sha1,sha256,sha256-prefix,xxh3-prefix"
    assert int(answer.headers["Tus-Max-Size"]) == settings.MAX_UPLOAD_BYTES


def test_upload_in_three_pieces_lies_on_disk_and_is_received(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    assert offset_of(bob, location) == 0
    for start, stop in ((0, 5000), (5000, 5001), (5001, len(BODY))):
        answer = patch(bob, location, start, BODY[start:stop])
        assert answer.status_code == 204
        assert answer.headers["Upload-Offset"] == str(stop)
        assert answer.headers["Tus-Resumable"] == "1.0.0"
    assert row(location).state == UploadState.RECEIVED
    assert staging_path(row(location).pk).read_bytes() == BODY
    assert offset_of(bob, location) == len(BODY)


def test_large_upload_is_committed_on_the_way(bob: httpx2.Client, shared_cast: Cast) -> None:
    body = os.urandom(20 << 20)
    location = begin(bob, shared_cast, len(body))
    answer = patch(bob, location, 0, body, **{"Upload-Checksum": checksum(body)})
    assert answer.status_code == 204
    assert hashlib.sha256(staging_path(row(location).pk).read_bytes()).digest() == hashlib.sha256(body).digest()


def test_other_protocol_version_is_412(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    answer = bob.patch(location, headers={"Tus-Resumable": "0.2.2", "Upload-Offset": "0"}, content=b"x")
    assert answer.status_code == 412
    assert answer.headers["Tus-Version"] == "1.0.0"


def test_wrong_offset_is_409_and_changes_nothing(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    patch(bob, location, 0, BODY[:100])
    for offset in (0, 99, 101):
        answer = patch(bob, location, offset, BODY[:10])
        assert answer.status_code == 409
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert offset_of(bob, location) == 100


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_damaged_chunk_is_460_and_thrown_away(bob: httpx2.Client, shared_cast: Cast, algorithm: str) -> None:
    location = begin(bob, shared_cast)
    good, bad = BODY[:1000], BODY[1000:2000]
    assert patch(bob, location, 0, good, **{"Upload-Checksum": checksum(good, algorithm)}).status_code == 204
    answer = patch(bob, location, 1000, b"?" + bad[1:], **{"Upload-Checksum": checksum(bad, algorithm)})
    assert answer.status_code == 460
    assert offset_of(bob, location) == 1000
    assert staging_path(row(location).pk).stat().st_size == 1000


def test_more_than_announced_is_413(bob: httpx2.Client, shared_cast: Cast) -> None:
    version = shared_cast.version()
    words = metadata(version=str(version.pk), path="model.onnx")
    huge = {"Upload-Length": str(settings.MAX_UPLOAD_BYTES + 1), "Upload-Metadata": words}
    assert bob.post("/api/v1/uploads/", headers=huge).status_code == 413
    location = begin(bob, shared_cast, 10)
    assert patch(bob, location, 0, b"12345678901").status_code == 413
    headers = {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
    assert bob.patch(location, headers=headers, content=iter([b"12345", b"678901"])).status_code == 413
    assert offset_of(bob, location) == 0


def test_other_content_type_is_415(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    assert patch(bob, location, 0, b"x", **{"Content-Type": "application/octet-stream"}).status_code == 415


def test_path_that_leaves_the_version_is_refused(bob: httpx2.Client, shared_cast: Cast) -> None:
    version = shared_cast.version()
    for path in ("../model.onnx", "/etc/passwd", "a\\b", ""):
        words = metadata(version=str(version.pk), path=path)
        answer = bob.post("/api/v1/uploads/", headers={"Upload-Length": "4", "Upload-Metadata": words})
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == "path"
    assert not Upload.objects.exists()


def test_outsiders_see_nothing_and_viewers_may_not_write(
    console: RunningConsole, bob: httpx2.Client, shared_cast: Cast
) -> None:
    location = begin(bob, shared_cast)
    version = str(row(location).version_id)
    words = {"Upload-Length": "4", "Upload-Metadata": metadata(version=version, path="other.onnx")}
    for name, token, status in (
        ("charlie", shared_cast.token("charlie"), 404),
        ("vera", shared_cast.token("vera"), 403),
        ("bob, read only", shared_cast.token("bob", "read"), 403),
        ("nobody", "flo_unknown_secret", 401),
    ):
        with console.client(token, **TUS) as client:
            assert client.post("/api/v1/uploads/", headers=words).status_code == status, name
            assert patch(client, location, 0, b"x").status_code in {status, 404}, name
            assert client.delete(location).status_code in {status, 404}, name
    with console.client(**TUS) as client:
        assert client.head(location).status_code == 401
    assert offset_of(bob, location) == 0


def test_session_needs_the_csrf_header_and_our_origin(console: RunningConsole, shared_cast: Cast) -> None:
    from django.test import Client

    browser = Client()
    assert browser.login(username="bob", password=PASSWORD)
    secret = "a" * 32
    cookies = f"{settings.SESSION_COOKIE_NAME}={browser.session.session_key}; {settings.CSRF_COOKIE_NAME}={secret}"
    words = {
        "Upload-Length": "4",
        "Upload-Metadata": metadata(version=str(shared_cast.version().pk), path="model.onnx"),
        "Cookie": cookies,
    }
    with console.client(**TUS) as client:
        assert client.post("/api/v1/uploads/", headers=words).status_code == 403
        wrong = {**words, "X-CSRFToken": "b" * 32}
        assert client.post("/api/v1/uploads/", headers=wrong).status_code == 403
        right = {**words, "X-CSRFToken": secret}
        foreign = {**right, "Origin": "https://evil.example"}
        assert client.post("/api/v1/uploads/", headers=foreign).status_code == 403
        answer = client.post("/api/v1/uploads/", headers={**right, "Origin": console.url})
        assert answer.status_code == 201
        assert client.head(answer.headers["Location"], headers={"Cookie": cookies}).status_code == 200


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the first PATCH holds its upload."""
    event = threading.Event()
    begin_patch = sessions.begin

    def begin_and_tell(*arguments: Any) -> Any:
        found = begin_patch(*arguments)
        event.set()
        return found

    monkeypatch.setattr(sessions, "begin", begin_and_tell)
    return event


class HalfSentPatch:
    """A PATCH that announces more than it sends, over a bare socket."""

    def __init__(
        self, console: RunningConsole | ConsoleProcess, token: str, location: str, body: bytes, **headers: str
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", console.port), timeout=30)
        words = {
            "Host": "127.0.0.1",
            "Authorization": f"Bearer {token}",
            "Upload-Offset": "0",
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(len(BODY)),
            **TUS,
            **headers,
        }
        head = f"PATCH {location} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in words.items())
        self._socket.sendall(head.encode() + b"\r\n" + body)

    def answer(self) -> httpx2.Response:
        """Wait for the answer, which says that it has a body; leave."""
        with self._socket.makefile("rb") as lines:
            status = int(lines.readline().split()[1])
            headers = dict(line.decode().strip().split(": ", 1) for line in iter(lines.readline, b"\r\n"))
            content = lines.read(int(headers["content-length"]))
        self.leave()
        return httpx2.Response(status, headers=headers, content=content)

    def leave(self) -> None:
        self._socket.close()


def until(condition: Any) -> None:
    """Wait for what another thread does, five seconds at most."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_second_writer_is_423_and_what_arrived_before_a_cut_counts(
    console: RunningConsole, bob: httpx2.Client, shared_cast: Cast, locked: threading.Event
) -> None:
    location = begin(bob, shared_cast)
    first = HalfSentPatch(console, shared_cast.token("bob"), location, BODY[:700])
    assert locked.wait(30)
    assert patch(bob, location, 0, b"").status_code == 423
    assert bob.delete(location).status_code == 423
    first.leave()
    until(lambda: offset_of(bob, location) == 700)
    until(lambda: patch(bob, location, 700, BODY[700:]).status_code == 204)
    assert staging_path(row(location).pk).read_bytes() == BODY


def test_cut_chunk_with_checksum_does_not_count(
    console: RunningConsole, bob: httpx2.Client, shared_cast: Cast, locked: threading.Event
) -> None:
    location = begin(bob, shared_cast)
    first = HalfSentPatch(
        console, shared_cast.token("bob"), location, BODY[:700], **{"Upload-Checksum": checksum(BODY)}
    )
    assert locked.wait(30)
    assert patch(bob, location, 0, b"").status_code == 423
    first.leave()
    until(lambda: patch(bob, location, 0, BODY).status_code == 204)
    assert staging_path(row(location).pk).read_bytes() == BODY


@pytest.mark.parametrize(
    ("bytes_per_second", "seconds", "code"), [(1, 600, "idle"), (10**9, 600, "too_slow"), (0, 1, "too_slow")]
)
@pytest.mark.parametrize("length", [20_000, 200_000])
def test_body_that_drips_is_408_and_goes_on_from_what_arrived(
    bob: httpx2.Client,
    console: RunningConsole,
    shared_cast: Cast,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    bytes_per_second: int,
    seconds: int,
    code: str,
    length: int,
) -> None:
    """Short bodies come in pieces of the web server, long ones from the socket."""
    body = os.urandom(length)
    location = begin(bob, shared_cast, length)
    settings.UPLOAD_LEAST_BYTES_PER_SECOND, settings.UPLOAD_REQUEST_SECONDS = bytes_per_second, seconds
    monkeypatch.setattr(reception, "WINDOW_SECONDS", 0.3)
    slow = HalfSentPatch(
        console, shared_cast.token("bob"), location, body[:10_000], **{"Content-Length": str(length)}
    ).answer()
    assert (slow.status_code, slow.json()["code"]) == (408, code)
    assert offset_of(bob, location) == 10_000
    settings.UPLOAD_LEAST_BYTES_PER_SECOND, settings.UPLOAD_REQUEST_SECONDS = 1, 600
    assert patch(bob, location, 10_000, body[10_000:]).status_code == 204
    assert staging_path(row(location).pk).read_bytes() == body


def test_bytes_that_a_dead_process_left_behind_are_cut_off(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    patch(bob, location, 0, BODY[:500])
    with staging_path(row(location).pk).open("ab") as file:
        file.write(b"never accepted")
    assert offset_of(bob, location) == 500
    assert patch(bob, location, 500, BODY[500:]).status_code == 204
    assert staging_path(row(location).pk).read_bytes() == BODY


def test_bytes_that_the_disk_lost_are_asked_for_again(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    patch(bob, location, 0, BODY[:500])
    os.truncate(staging_path(row(location).pk), 200)
    assert offset_of(bob, location) == 200
    assert patch(bob, location, 500, BODY[500:]).status_code == 409
    assert patch(bob, location, 200, BODY[200:]).status_code == 204
    assert staging_path(row(location).pk).read_bytes() == BODY


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_for_a_new_upload_is_507_and_leaves_the_path_free(
    bob: httpx2.Client, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    version = shared_cast.version()
    words = {
        "Upload-Length": str(len(BODY)),
        "Upload-Metadata": metadata(version=str(version.pk), path="model.onnx"),
    }

    def full(*_args: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(sessions, "StagedFile", full)
        answer = bob.post("/api/v1/uploads/", headers=words)
    assert (answer.status_code, answer.json()["code"]) == (507, "storage_full")
    assert not Upload.objects.filter(state=UploadState.RECEIVING).exists()
    assert bob.post("/api/v1/uploads/", headers=words).status_code == 201


def test_upload_that_does_not_fit_is_not_begun(
    bob: httpx2.Client, shared_cast: Cast, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "Upload-Length": str(len(BODY)),
        "Upload-Metadata": metadata(version=str(shared_cast.version().pk), path="model.onnx"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(settings, "STAGING_FREE_BYTES", 2**62)
        answer = bob.post("/api/v1/uploads/", headers=words)
    assert (answer.status_code, answer.json()["code"]) == (507, "storage_full")
    assert f"this takes {len(BODY)}" in answer.json()["detail"]
    with monkeypatch.context() as patched:
        patched.setattr(room, "LEAST_FREE_NAMES", 2**62)
        answer = bob.post("/api/v1/uploads/", headers=words)
    assert (answer.status_code, answer.json()["code"]) == (507, "storage_full")
    assert not Upload.objects.exists()
    assert bob.post("/api/v1/uploads/", headers=words).status_code == 201


def blocks(location: str) -> int:
    return staging_path(row(location).pk).stat().st_blocks * 512


def test_room_is_reserved_at_the_beginning_and_goes_back_at_the_end(
    bob: httpx2.Client, shared_cast: Cast, tmp_path: Path
) -> None:
    with (tmp_path / "trial").open("wb") as trial:
        room.take_room(trial.fileno(), 8 << 20)
        if os.fstat(trial.fileno()).st_blocks == 0:
            pytest.skip("the file system here cannot reserve")
    body = os.urandom(8 << 20)
    location = begin(bob, shared_cast, len(body))
    assert blocks(location) >= len(body)
    assert offset_of(bob, location) == 0
    # A refused chunk is cut off, which gives its room back; the next chunk takes it again.
    assert patch(bob, location, 0, body[:300_000], **{"Upload-Checksum": checksum(b"")}).status_code == 460
    assert patch(bob, location, 0, body[:300_000]).status_code == 204
    assert blocks(location) >= len(body)
    assert patch(bob, location, 300_000, body[300_000:]).status_code == 204
    assert staging_path(row(location).pk).read_bytes() == body
    gone = begin(bob, shared_cast, len(body))
    assert bob.delete(gone).status_code == 204
    assert not staging_path(row(gone).pk).exists()


def test_no_room_to_reserve_leaves_the_path_free(
    bob: httpx2.Client, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    words = {
        "Upload-Length": str(len(BODY)),
        "Upload-Metadata": metadata(version=str(shared_cast.version().pk), path="model.onnx"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(sessions, "take_room", full)
        assert bob.post("/api/v1/uploads/", headers=words).status_code == 507
    assert not any(staging_path(one.pk).exists() for one in Upload.objects.all())
    assert bob.post("/api/v1/uploads/", headers=words).status_code == 201


def test_full_disk_in_a_large_chunk_keeps_the_rest_of_the_upload(
    bob: httpx2.Client, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, write = os.urandom(5 << 20), os.pwrite
    location = begin(bob, shared_cast, len(body))
    assert patch(bob, location, 0, body[: 1 << 20], **{"Upload-Checksum": prefix(body[: 1 << 20])}).status_code == 204

    def small_disk(descriptor: int, data: Any, offset: int) -> int:
        if offset >= 3 << 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", small_disk)
        answer = patch(bob, location, 1 << 20, body[1 << 20 :], **{"Upload-Checksum": prefix(body)})
        assert (answer.status_code, answer.json()["code"]) == (507, "storage_full")
    assert offset_of(bob, location) == 1 << 20
    assert patch(bob, location, 1 << 20, body[1 << 20 :], **{"Upload-Checksum": prefix(body)}).status_code == 204
    assert row(location).sha256 == hashlib.sha256(body).hexdigest()


def test_full_disk_is_507_and_keeps_what_fitted(
    bob: httpx2.Client, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = begin(bob, shared_cast)
    write = os.pwrite

    def small_disk(descriptor: int, data: Any, offset: int) -> int:
        if offset >= 300:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, bytes(data)[: 300 - offset], offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", small_disk)
        answer = patch(bob, location, 0, BODY)
    assert answer.status_code == 507
    assert answer.json()["code"] == "storage_full"
    assert offset_of(bob, location) == 300
    assert patch(bob, location, 300, BODY[300:]).status_code == 204


def test_terminated_and_expired_uploads_are_gone(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    patch(bob, location, 0, BODY[:10])
    assert bob.delete(location).status_code == 204
    assert not staging_path(row(location).pk).exists()
    assert bob.head(location).status_code == 410
    expired = begin(bob, shared_cast)
    Upload.objects.filter(pk=row(expired).pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert patch(bob, expired, 0, b"x").status_code == 410
    assert bob.head("/api/v1/uploads/00000000-0000-7000-8000-000000000000").status_code == 404
    assert bob.head("/api/v1/uploads/../../etc/passwd").status_code == 404


def test_method_override_is_a_patch(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast)
    headers = {
        "X-HTTP-Method-Override": "PATCH",
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
    }
    assert bob.post(location, headers=headers, content=BODY).status_code == 204


@pytest.mark.integration
def test_upload_goes_on_after_the_server_was_killed(console_process: ConsoleProcess, shared_cast: Cast) -> None:
    body = os.urandom(20 << 20)
    token = shared_cast.token("bob")
    with console_process.client(token, **TUS) as client:
        location = begin(client, shared_cast, len(body))
        half = HalfSentPatch(console_process, token, location, body[: 15 << 20], **{"Content-Length": str(len(body))})
        until(lambda: offset_of(client, location) >= 8 << 20)
        console_process.kill()
        half.leave()
    console_process.start()
    with console_process.client(token, **TUS) as client:
        offset = offset_of(client, location)
        assert 8 << 20 <= offset <= 15 << 20
        assert patch(client, location, offset, body[offset:]).status_code == 204
    assert staging_path(row(location).pk).read_bytes() == body
    assert row(location).state == UploadState.RECEIVED


PREFIXES = {"sha256-prefix": hashlib.sha256, "xxh3-prefix": xxh3_128}


def prefix(body: bytes, algorithm: str = "sha256-prefix") -> str:
    return f"{algorithm} {base64.b64encode(PREFIXES[algorithm](body).digest()).decode()}"


def test_digests_are_known_with_the_last_byte_and_the_file_is_read_by_nobody_again(
    bob: httpx2.Client, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = begin(bob, shared_cast, sha256=hashlib.sha256(BODY).hexdigest())
    for start, stop in ((0, 5000), (5000, len(BODY))):
        answer = patch(bob, location, start, BODY[start:stop], **{"Upload-Checksum": prefix(BODY[:stop])})
        assert answer.status_code == 204
    found = row(location)
    assert (found.state, found.sha256) == (UploadState.RECEIVED, hashlib.sha256(BODY).hexdigest())

    def never(_path: Any) -> Any:
        raise AssertionError("read again")

    monkeypatch.setattr(uploads, "_hash_file", never)
    blob = uploads.upload_store(upload_id=found.pk)
    assert (blob.sha256, blob.size) == (found.sha256, len(BODY))
    assert b"".join(artifact_store().open_range(blob.sha256)) == BODY


@pytest.mark.parametrize("algorithm", PREFIXES)
def test_chunk_that_is_not_what_its_prefix_says_is_thrown_away(
    bob: httpx2.Client, shared_cast: Cast, algorithm: str
) -> None:
    location = begin(bob, shared_cast)
    first = {"Upload-Checksum": prefix(BODY[:900], algorithm)}
    assert patch(bob, location, 0, BODY[:900], **first).status_code == 204
    right = {"Upload-Checksum": prefix(BODY, algorithm)}
    assert patch(bob, location, 900, b"?" + BODY[901:], **right).status_code == 460
    assert offset_of(bob, location) == 900
    assert patch(bob, location, 900, BODY[900:], **right).status_code == 204
    assert row(location).sha256 == hashlib.sha256(BODY).hexdigest()


def test_other_bytes_than_promised_fail_with_the_last_one(bob: httpx2.Client, shared_cast: Cast) -> None:
    location = begin(bob, shared_cast, sha256="0" * 64)
    answer = patch(bob, location, 0, BODY)
    assert answer.status_code == 400
    assert "damaged" in answer.json()["detail"]
    assert row(location).state == UploadState.FAILED
    assert not staging_path(row(location).pk).exists()
    assert bob.head(location).status_code == 410


def test_upload_whose_last_byte_was_written_but_not_noted_ends_with_an_empty_chunk(
    bob: httpx2.Client, shared_cast: Cast
) -> None:
    location = begin(bob, shared_cast)
    patch(bob, location, 0, BODY[:-1])
    with staging_path(row(location).pk).open("ab") as file:
        file.write(BODY[-1:])
    Upload.objects.filter(pk=row(location).pk).update(offset=len(BODY))
    assert patch(bob, location, len(BODY), b"").status_code == 204
    assert (row(location).state, row(location).sha256) == (UploadState.RECEIVED, hashlib.sha256(BODY).hexdigest())


@pytest.mark.parametrize("algorithm", PREFIXES)
def test_last_chunk_is_a_promise_when_the_server_has_forgotten_the_first(
    bob: httpx2.Client, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    location = begin(bob, shared_cast)
    patch(bob, location, 0, BODY[:5000])
    # Another process goes on, which is not allowed to read the beginning again; and a byte of it has changed.
    monkeypatch.setattr(digests, "CATCH_UP_BYTES", 0)
    reception._digests.forget(row(location).pk)
    with staging_path(row(location).pk).open("r+b") as staged:
        staged.write(b"x")
    answer = patch(bob, location, 5000, BODY[5000:], **{"Upload-Checksum": prefix(BODY, algorithm)})
    assert answer.status_code == 204
    upload = row(location)
    promised = {"sha256-prefix": upload.expected_sha256, "xxh3-prefix": upload.expected_xxh3}
    assert (upload.state, upload.sha256) == ("received", "")
    assert promised == {name: made(BODY).hexdigest() if name == algorithm else "" for name, made in PREFIXES.items()}
    with pytest.raises(ValidationFailed, match="damaged on the way"):
        uploads.upload_store(upload_id=upload.pk)
    assert row(location).state == UploadState.FAILED
