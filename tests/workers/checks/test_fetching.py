"""Versions from addresses: a real web server, a real object store (moto), and everything that must not be fetched."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.actors import Actor
from registry.domain.import_sources import source_problem
from registry.errors import Conflict, Immutable, PermissionDenied, ValidationFailed
from registry.models import Blob, ModelVersion, Operation, Transition, VersionFile
from registry.services import tokens
from registry.services.fetching import fetches_collect, version_fetch
from registry.services.operations import operation_cancel
from tests.workers import factories
from tests.workers.checks import onnx_models as models
from tests.workers.checks.test_arranging import zipped
from workers.checks import fetching
from workers.tasks.operations import work_on

VALID = models.linear().SerializeToString()
BIG = os.urandom(400_000)


class Source(BaseHTTPRequestHandler):
    """Serves what the tests need; ``/moved`` leads elsewhere and ``/endless`` never ends by itself.

    Below ``/r/`` it knows ranges: ``tagged`` and ``dated`` are as they should be, ``untagged`` tells nothing of its
    content, ``changing`` is another file each time, ``cut`` ends each answer early. ``asked``: the ranges, in order.
    """

    asked: list[str] = []

    def do_GET(self) -> None:
        if self.path.startswith("/r/"):
            self._ranges()
            return
        contents = {
            "/m/model.onnx": VALID,
            "/m/repo.zip": zipped({"net/1/model.onnx": VALID, "old/1/model.onnx": VALID}),
        }
        if self.path == "/m/moved":
            self.send_response(302)
            self.send_header("Location", "/secret")
            self.end_headers()
        elif self.path == "/m/endless":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(bytes(1 << 16))
        elif self.path in contents:
            self.send_response(200)
            self.send_header("Content-Length", str(len(contents[self.path])))
            self.end_headers()
            self.wfile.write(contents[self.path])
        else:
            self.send_error(404)

    def _ranges(self) -> None:
        name = self.path.rpartition("/")[2]
        self.asked.append(self.headers.get("Range", ""))
        tag = f'"{len(self.asked) if name == "changing" else 1}"'
        date = "Sun, 22 Nov 2026 00:00:00 GMT"
        mark = {"untagged": "", "dated": date}.get(name, tag)
        found = re.fullmatch(r"bytes=([0-9]+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        start = int(found[1]) if found and condition in (None, mark) else 0
        if start >= len(BIG):
            self.send_error(416)
            return
        self.send_response(206 if found and condition in (None, mark) else 200)
        self.send_header("Content-Length", str(len(BIG) - start))
        self.send_header("Content-Range", f"bytes {start}-{len(BIG) - 1}/{len(BIG)}")
        if mark:
            self.send_header("Last-Modified" if name == "dated" else "ETag", mark)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(BIG[start : start + 150_000] if name == "cut" else BIG[start:])

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def origin() -> Iterator[str]:
    Source.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Source)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(30)
    server.server_close()


def fetch(address: str) -> tuple[ModelVersion, Operation]:
    version = factories.make_version(factories.make_model(), {}, state="uploading")
    operation = version_fetch(version=version, address=address, actor=Actor.person(version.author))
    work_on(operation.pk)
    operation.refresh_from_db()
    if operation.state == "succeeded":
        work_on(operation.result["operation"])
    version.refresh_from_db()
    return version, operation


@pytest.mark.django_db(transaction=True)
def test_a_file_of_a_web_server(origin: str, settings: Any) -> None:
    settings.IMPORT_SOURCES = [f"{origin}/m/"]
    version, operation = fetch(f"{origin}/m/model.onnx")
    assert (operation.state, version.state, version.number) == ("succeeded", "ready", 1)


@pytest.mark.django_db(transaction=True)
def test_a_repository_in_an_archive_is_taken_apart(origin: str, settings: Any) -> None:
    settings.IMPORT_SOURCES = [f"{origin}/m/"]
    version, _operation = fetch(f"{origin}/m/repo.zip")
    assert version.state == "abandoned"
    assert set(ModelVersion.objects.values_list("model__slug", flat=True)) == {version.model.slug, "net", "old"}


@pytest.mark.django_db(transaction=True)
def test_everything_below_a_prefix(tmp_path: Path, settings: Any) -> None:
    (tmp_path / "shared/net/w").mkdir(parents=True)
    (tmp_path / "shared/net/model.onnx").write_bytes(VALID)
    (tmp_path / "shared/net/w/labels.txt").write_bytes(b"a")
    settings.IMPORT_SOURCES = [(tmp_path / "shared").as_uri()]
    version, operation = fetch((tmp_path / "shared/net").as_uri())
    assert (operation.state, version.state) == ("succeeded", "ready")
    paths = VersionFile.objects.filter(version=version).values_list("path", flat=True)
    assert sorted(paths) == ["model.onnx", "w/labels.txt"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("path", "why"),
    [("/m/moved", "answered 302"), ("/m/gone.onnx", "answered 404"), ("/m/endless", "room for only 3000000 bytes")],
)
def test_what_cannot_be_fetched_leaves_the_version_waiting(origin: str, settings: Any, path: str, why: str) -> None:
    settings.IMPORT_SOURCES = [origin]
    settings.MAX_UPLOAD_BYTES = 3_000_000
    version, operation = fetch(f"{origin}{path}")
    assert (operation.state, version.state) == ("failed", "uploading")
    assert why in operation.error["message"]
    assert not VersionFile.objects.exists()
    assert not list(Path(settings.STAGING_DIR).glob("fetch-*"))


def turns(address: str) -> tuple[Operation, int]:
    """Work until the operation has ended; return it and how many turns that took."""
    version = factories.make_version(factories.make_model(), {}, state="uploading")
    operation = version_fetch(version=version, address=address, actor=Actor.person(version.author))
    count = 0
    while operation.state in ("pending", "running"):
        count += 1
        assert count < 60
        work_on(operation.pk)
        operation.refresh_from_db()
    return operation, count


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["tagged", "dated", "cut"])
def test_a_large_file_comes_in_turns(origin: str, settings: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name != "cut":
        monkeypatch.setattr(fetching, "TURN_SECONDS", 0)
    settings.IMPORT_SOURCES = [origin]
    operation, count = turns(f"{origin}/r/{name}")
    assert (operation.state, operation.error) == ("succeeded", None)
    assert count >= 3
    # Each turn asked for what was missing, and for nothing twice.
    starts = [int(text.removeprefix("bytes=").removesuffix("-")) for text in Source.asked]
    assert starts == sorted(set(starts)) and len(starts) == count
    assert Blob.objects.get().sha256 == hashlib.sha256(BIG).hexdigest()
    moves = Transition.objects.filter(object_id=operation.pk, from_state="running", to_state="pending")
    assert moves.count() == count - 1
    assert operation.attempts == 1
    assert not list(Path(settings.STAGING_DIR).glob("fetch-*"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["changing", "untagged"])
def test_what_cannot_be_gone_on_with_begins_anew_a_few_times_only(
    origin: str, settings: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fetching, "TURN_SECONDS", 0)
    monkeypatch.setattr(fetching, "WHOLE_SECONDS", 0)
    settings.IMPORT_SOURCES = [origin]
    operation, _count = turns(f"{origin}/r/{name}")
    assert operation.state == "failed"
    assert "begun anew 3 times" in operation.error["message"]
    assert not list(Path(settings.STAGING_DIR).glob("fetch-*"))


@pytest.mark.django_db(transaction=True)
def test_a_server_without_ranges_gets_the_time_of_a_whole_task(
    origin: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TURN_SECONDS", 0)
    settings.IMPORT_SOURCES = [origin]
    operation, count = turns(f"{origin}/r/untagged")
    assert (operation.state, count) == ("succeeded", 1)


@pytest.mark.django_db(transaction=True)
def test_objects_of_a_store_come_in_turns_and_a_changed_one_anew(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TURN_SECONDS", 0)
    folder = tmp_path / "shared/net"
    folder.mkdir(parents=True)
    contents = {"a.bin": os.urandom(3_000_000), "b.bin": b"b", "c.bin": b""}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    settings.IMPORT_SOURCES = [(tmp_path / "shared").as_uri()]
    version = factories.make_version(factories.make_model(), {}, state="uploading")
    operation = version_fetch(version=version, address=folder.as_uri(), actor=Actor.person(version.author))
    work_on(operation.pk)
    operation.refresh_from_db()
    assert (operation.state, operation.attempts) == ("pending", 0)
    assert "of 2.9 MiB" in operation.message
    contents["a.bin"] = os.urandom(3_000_000)
    (folder / "a.bin").write_bytes(contents["a.bin"])
    while operation.state == "pending":
        work_on(operation.pk)
        operation.refresh_from_db()
    assert (operation.state, operation.error) == ("succeeded", None)
    found = VersionFile.objects.filter(version=version).values_list("path", "blob__sha256")
    assert dict(found) == {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("damage", ["state cut off", "file cut off", "file longer"])
def test_what_a_dead_worker_left_behind_is_gone_on_with(
    origin: str, settings: Any, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(fetching, "TURN_SECONDS", 0)
    settings.IMPORT_SOURCES = [origin]
    version = factories.make_version(factories.make_model(), {}, state="uploading")
    operation = version_fetch(version=version, address=f"{origin}/r/tagged", actor=Actor.person(version.author))
    work_on(operation.pk)
    (folder,) = Path(settings.STAGING_DIR).glob("fetch-*")
    if damage == "state cut off":
        (folder / "state.json").write_text('{"files"')
    elif damage == "file cut off":
        os.truncate(folder / "0", 1000)
    else:
        with (folder / "0").open("ab") as file:
            file.write(b"not noted")
    monkeypatch.undo()
    settings.IMPORT_SOURCES = [origin]
    work_on(operation.pk)
    operation.refresh_from_db()
    assert (operation.state, operation.error) == ("succeeded", None)
    assert Blob.objects.get().sha256 == hashlib.sha256(BIG).hexdigest()


@pytest.mark.django_db(transaction=True)
def test_cancelled_between_turns_it_ends_and_is_swept(
    origin: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TURN_SECONDS", 0)
    settings.IMPORT_SOURCES = [origin]
    version = factories.make_version(factories.make_model(), {}, state="uploading")
    author = Actor.person(version.author)
    operation = version_fetch(version=version, address=f"{origin}/r/tagged", actor=author)
    work_on(operation.pk)
    operation.refresh_from_db()
    assert fetches_collect(operation.created_at) == 0
    operation_cancel(operation=operation, actor=author)
    work_on(operation.pk)
    operation.refresh_from_db()
    assert operation.state == "cancelled"
    assert fetches_collect(operation.created_at) == 1
    assert not list(Path(settings.STAGING_DIR).glob("fetch-*"))


@pytest.mark.django_db(transaction=True)
def test_a_fetch_that_takes_days_is_given_up(origin: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TURN_SECONDS", 0)
    settings.IMPORT_SOURCES = [origin]
    settings.UPLOAD_EXPIRY_HOURS = 0
    operation, count = turns(f"{origin}/r/tagged")
    assert (operation.state, count) == ("failed", 1)
    assert "took longer than 0 hours" in operation.error["message"]


@pytest.mark.django_db
def test_who_may_not(settings: Any) -> None:
    settings.IMPORT_SOURCES = ["https://models.example.com/"]
    version = factories.make_version(factories.make_model(), {}, state="uploading")
    author, address = Actor.person(version.author), "https://models.example.com/model.onnx"
    with pytest.raises(ValidationFailed, match="fetches only from"):
        version_fetch(version=version, address="https://elsewhere.example.com/model.onnx", actor=author)
    version_fetch(version=version, address=address, actor=author)
    with pytest.raises(Conflict):
        version_fetch(version=version, address=address, actor=author)
    ready = factories.make_version(version.model, {}, state="ready")
    with pytest.raises(Immutable):
        version_fetch(version=ready, address=address, actor=author)
    from registry.models import User

    stranger = Actor.person(User.objects.create(username="stranger"))
    with pytest.raises(PermissionDenied):
        version_fetch(version=version, address=address, actor=stranger)


@pytest.mark.django_db(transaction=True)
def test_a_key_that_was_revoked_meanwhile_submits_nothing(origin: str, settings: Any) -> None:
    settings.IMPORT_SOURCES = [f"{origin}/m/"]
    version = factories.make_version(factories.make_model(), {}, state="uploading")
    token, _text = tokens.token_create(
        owner=version.author, name="x", scopes=["write"], actor=Actor.person(version.author)
    )
    actor = Actor.person(version.author, token=token)
    operation = version_fetch(version=version, address=f"{origin}/m/model.onnx", actor=actor)
    tokens.token_revoke(token=token, actor=actor)
    work_on(operation.pk)
    operation.refresh_from_db()
    assert (operation.state, "was revoked" in operation.error["message"]) == ("failed", True)
    version.refresh_from_db()
    assert (version.state, version.files.count()) == ("uploading", 0)


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("https://models.example.com/public/a.onnx", True),
        ("https://MODELS.example.com/public/below/a.onnx", True),
        ("https://models.example.com/public/../secret/a.onnx", False),
        ("https://models.example.com/public/%2e%2e/secret/a.onnx", False),
        ("https://models.example.com/public/%252e%252e/secret/a.onnx", False),
        ("https://models.example.com/publicity/a.onnx", False),
        ("https://models.example.com.evil.org/public/a.onnx", False),
        ("https://models.example.com@evil.org/public/a.onnx", False),
        ("https://models.example.com:8443/public/a.onnx", False),
        ("http://models.example.com/public/a.onnx", False),
        ("https://models.example.com/public/", False),
        ("s3://bucket/released", True),
        ("s3://bucket/released/net", True),
        ("s3://bucket/other", False),
        ("s3://bucket2/released/net", False),
        ("file:///etc/passwd", False),
        ("ftp://models.example.com/public/a.onnx", False),
        ("nonsense", False),
        ("https://models.example.com/public/a b", False),
        ("https://[::1/public/a", False),
    ],
)
def test_only_what_begins_as_the_operator_says(address: str, is_allowed: bool) -> None:
    sources = ["https://models.example.com/public/", "s3://bucket/released/"]
    assert (source_problem(address, sources) == "") is is_allowed
    assert source_problem(address, [])


@given(st.text(alphabet="./%2e\\abc:@?#", max_size=30))
def test_no_spelling_leads_out(tail: str) -> None:
    from urllib.parse import unquote, urlsplit

    address = f"https://models.example.com/public/{tail}"
    if not source_problem(address, ["https://models.example.com/public/"]):
        path = unquote(unquote(urlsplit(address).path))
        assert path.startswith("/public/")
        assert ".." not in path.split("/")
        assert urlsplit(address).hostname == "models.example.com"
