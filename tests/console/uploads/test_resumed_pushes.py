"""Pushes whose process is killed, and the same command again: the same version, and only the bytes that are missing."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flotilla.sdk import Flotilla, PushRecord, chunks, tus
from flotilla.sdk import upload as sdk_upload
from registry.domain.actors import Actor
from registry.models import ModelVersion, Operation, Upload
from registry.services.uploads import staging_path, upload_terminate
from registry.services.versions import version_abandon
from tests.console.conftest import Cast, RunningConsole
from tests.workers.checks.onnx_models import linear
from workers.tasks.operations import work_on

MIB = 1 << 20
CHUNK = 16 * MIB


class Gate:
    """Passes bytes to a port and back; after ``let_through`` bytes to the server it holds the rest until opened."""

    def __init__(self, target: int) -> None:
        self.let_through: int | None = None
        self.is_held = threading.Event()
        self.passed = 0
        self._target = target
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def hold_after(self, count: int | None) -> None:
        self.passed, self.let_through = 0, count
        self.is_held.clear()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            is_held = False
            while True:
                # A held client is still watched: when its process is killed, both sides are let go.
                for source in select.select([client, server], [], [])[0]:
                    piece = source.recv(256 * 1024)
                    if not piece:
                        return
                    if source is server:
                        client.sendall(piece)
                        continue
                    with self._lock:
                        is_held = is_held or (
                            self.let_through is not None and self.passed + len(piece) > self.let_through
                        )
                        if is_held:
                            self.is_held.set()
                            continue
                        self.passed += len(piece)
                    server.sendall(piece)


@pytest.fixture
def gate(console: RunningConsole) -> Iterator[Gate]:
    found = Gate(console.port)
    yield found
    found.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLOTILLA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pushes"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "model.onnx"
    found.write_bytes(linear().SerializeToString())
    return found


def pushing(gate: Gate, cast: Cast, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flotilla.cli", "push", "--json", "--url", gate.url, "--project", "wren"]
    environment = {**os.environ, "FLOTILLA_TOKEN": cast.token("bob"), "FLOTILLA_CONFIG_DIR": "/nonexistent"}
    return subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, out + errors
    found: dict[str, Any] = json.loads(out)
    return found


def until(said: Any) -> None:
    deadline = time.monotonic() + 30
    while not said():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.timeout(180)
def test_killed_client_goes_on_with_the_same_version_and_the_missing_bytes(
    gate: Gate, shared_cast: Cast, cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.pbtxt").write_bytes(b"x" * 1000)
    (folder / "weights.bin").write_bytes(os.urandom(2 * CHUNK + MIB))
    gate.hold_after(CHUNK + 4 * MIB)
    process = pushing(gate, shared_cast, "finch", str(folder), "--no-wait")
    assert gate.is_held.wait(60)
    until(lambda: Upload.objects.filter(path="weights.bin", offset__gte=CHUNK).exists())
    kill(process)
    (record,) = cache.glob("*.push")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    gate.hold_after(None)
    document = ended(pushing(gate, shared_cast, "finch", str(folder), "--no-wait"))
    version = ModelVersion.objects.get()
    assert document["version"]["id"] == str(version.pk)
    assert version.state == "validating"
    # What had arrived did not go again.
    assert CHUNK - 3 * MIB <= gate.passed < CHUNK + 2 * MIB
    for upload in Upload.objects.all():
        assert staging_path(upload.pk).read_bytes() == (folder / upload.path).read_bytes()
    assert Upload.objects.count() == 2
    assert not list(cache.iterdir())


@pytest.mark.timeout(180)
def test_client_killed_while_the_checks_run_follows_them_again(
    gate: Gate, shared_cast: Cast, cache: Path, file: Path
) -> None:
    process = pushing(gate, shared_cast, "finch", str(file))
    until(lambda: list(cache.glob("*.push")) and b"operation" in next(cache.glob("*.push")).read_bytes())
    kill(process)
    work_on(Operation.objects.get().pk)
    document = ended(pushing(gate, shared_cast, "finch", str(file)))
    assert (document["version"]["number"], document["verdict"]) == (1, "succeeded")
    assert ModelVersion.objects.count() == 1
    assert not list(cache.iterdir())


class Cut(Exception):
    """The process ends here, as far as the server and the record know."""


class Client:
    """A client in this process that can be made to stop after so many bytes of a file."""

    def __init__(self, console: RunningConsole, cast: Cast, name: str = "bob", token: str = "") -> None:
        self.flotilla = Flotilla(console.url, token or cast.token(name), project="wren")
        self.notices: list[str] = []
        self.first: dict[str, int] = {}

    def push(self, files: dict[str, Path], *, cut_at: int | None = None, record: PushRecord | None = None) -> str:
        """Return the id of the version."""
        self.first = {}

        def progress(path: str, sent: int, _total: int) -> None:
            self.first.setdefault(path, sent)
            if cut_at is not None and sent >= cut_at:
                raise Cut

        with self.flotilla as client, record or client.push_record("finch", files) as known:
            version, _operation = client.upload(
                "finch", files, progress=progress, record=known, notice=self.notices.append
            )
            known.forget()
        return str(version["id"])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> dict[str, Path]:
    """Two files of several chunks."""
    monkeypatch.setattr(chunks, "FIRST_BYTES", 100_000)
    monkeypatch.setattr(chunks, "MOST_BYTES", 100_000)
    monkeypatch.setattr(sdk_upload, "_FILES_AT_ONCE", 1)
    found = {}
    for name in ("a.bin", "b.bin"):
        found[name] = tmp_path / name
        found[name].write_bytes(os.urandom(450_000))
    return found


def cut_push(console: RunningConsole, cast: Cast, files: dict[str, Path], cut_at: int) -> ModelVersion:
    with pytest.raises(Cut):
        Client(console, cast).push(files, cut_at=cut_at)
    return ModelVersion.objects.get()


def staged(path: str) -> bytes:
    upload = Upload.objects.filter(path=path, state="received").latest("created_at")
    return staging_path(upload.pk).read_bytes()


def test_what_is_there_is_told_and_not_sent(console: RunningConsole, shared_cast: Cast, files: dict[str, Path]) -> None:
    version = cut_push(console, shared_cast, files, 200_000)
    second = Client(console, shared_cast)
    assert second.push(files) == str(version.pk)
    assert second.first == {"a.bin": 200_000, "b.bin": 0}
    assert second.notices == ["Going on with an earlier push; there already: 0 of 2 files, 195.3 KiB."]
    assert (staged("a.bin"), staged("b.bin")) == (files["a.bin"].read_bytes(), files["b.bin"].read_bytes())


def test_expired_version_is_made_anew_and_that_is_said(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path]
) -> None:
    version = cut_push(console, shared_cast, files, 200_000)
    version_abandon(version=version, reason="Nothing was uploaded in time.", actor=Actor.system("expiry"))
    second = Client(console, shared_cast)
    assert second.push(files) != str(version.pk)
    assert "expired" in second.notices[0]
    assert second.first == {"a.bin": 0, "b.bin": 0}


def test_expired_upload_of_a_version_that_waits_begins_again(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path]
) -> None:
    version = cut_push(console, shared_cast, files, 200_000)
    upload_terminate(upload_id=Upload.objects.get().pk, actor=Actor.system("expiry"))
    second = Client(console, shared_cast)
    assert second.push(files) == str(version.pk)
    assert second.first == {"a.bin": 0, "b.bin": 0}
    assert staged("a.bin") == files["a.bin"].read_bytes()


def test_file_that_changed_where_nobody_samples_is_sent_whole(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tus.time, "sleep", lambda _seconds: None)
    version = cut_push(console, shared_cast, files, 200_000)
    change(files["a.bin"])
    second = Client(console, shared_cast)
    assert second.push(files) == str(version.pk)
    assert staged("a.bin") == files["a.bin"].read_bytes()
    assert Upload.objects.filter(path="a.bin", state="terminated").count() == 1


def test_file_that_changed_after_it_was_there_makes_another_version(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path]
) -> None:
    version = cut_push(console, shared_cast, files, 450_000)
    change(files["a.bin"])
    second = Client(console, shared_cast)
    assert second.push(files) != str(version.pk)
    assert second.notices == ["a.bin changed after an earlier push had sent it; it starts anew."]
    version.refresh_from_db()
    assert version.state == "abandoned"
    assert staged("a.bin") == files["a.bin"].read_bytes()


def test_file_that_was_only_touched_is_known_by_its_digest(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path]
) -> None:
    version = cut_push(console, shared_cast, files, 450_000)
    os.utime(files["a.bin"], (1, 1))
    second = Client(console, shared_cast)
    assert second.push(files) == str(version.pk)
    assert second.first == {"a.bin": 450_000, "b.bin": 0}


def test_answer_that_got_lost_makes_no_second_version(
    console: RunningConsole, shared_cast: Cast, files: dict[str, Path], cache: Path
) -> None:
    token = shared_cast.token("bob")
    with pytest.raises(Cut):
        Client(console, shared_cast, token=token).push(files, cut_at=200_000)
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")  # Only the key was noted.
    assert Client(console, shared_cast, token=token).push(files) == str(ModelVersion.objects.get().pk)


def test_two_at_once_make_two_versions(console: RunningConsole, shared_cast: Cast, files: dict[str, Path]) -> None:
    bob = Flotilla(console.url, shared_cast.token("bob"), project="wren")
    with bob, bob.push_record("finch", files) as first:
        ids = {Client(console, shared_cast).push(files), Client(console, shared_cast).push(files, record=first)}
    assert len(ids) == ModelVersion.objects.count() == 2


def test_somebody_else_starts_anew(console: RunningConsole, shared_cast: Cast, files: dict[str, Path]) -> None:
    version = cut_push(console, shared_cast, files, 200_000)
    second = Client(console, shared_cast, "alice")
    assert second.push(files) != str(version.pk)
    assert "cannot be gone on with" in second.notices[-1]


def change(file: Path) -> None:
    """Change a byte that no sample holds; the size stays."""
    content = bytearray(file.read_bytes())
    content[100_000] ^= 1
    file.write_bytes(content)
    os.utime(file, (2, 2))
