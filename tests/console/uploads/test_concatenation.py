"""One upload out of parts, over the wire, and on the disk whenever the worker dies."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.utils import timezone
from xxhash import xxh3_128

from registry.errors import StorageFailed, ValidationFailed
from registry.models import ModelVersion, Upload, UploadState, VersionFile
from registry.selectors.quotas import bytes_used
from registry.services import parts as parts_service
from registry.services import versions
from registry.services.parts import join_files
from registry.services.uploads import staging_path, upload_store, upload_terminate, uploads_expire
from registry.storage import artifact_store
from tests.console.conftest import Cast
from tests.console.uploads.test_uploads_app import BODY, bob, metadata, patch

__all__ = ["bob"]

CUTS = ((0, 5000), (5000, 5001), (5001, len(BODY)))


def part(client: httpx2.Client, version: ModelVersion, body: bytes, number: int, *, is_sent: bool = True) -> str:
    words = metadata(version=str(version.pk), path="model.onnx", part=str(number))
    headers = {"Upload-Concat": "partial", "Upload-Length": str(len(body)), "Upload-Metadata": words}
    answer = client.post("/api/v1/uploads/", headers=headers)
    assert answer.status_code == 201, answer.text
    location: str = answer.headers["Location"]
    if is_sent:
        assert patch(client, location, 0, body).status_code == 204
    return location


def join(client: httpx2.Client, version: ModelVersion, *locations: str, **more: str) -> httpx2.Response:
    words = metadata(version=str(version.pk), path="model.onnx", **more)
    return client.post(
        "/api/v1/uploads/", headers={"Upload-Concat": "final;" + " ".join(locations), "Upload-Metadata": words}
    )


@pytest.fixture
def version(shared_cast: Cast) -> ModelVersion:
    return shared_cast.version()


@pytest.fixture
def locations(bob: httpx2.Client, version: ModelVersion) -> list[str]:
    return [part(bob, version, BODY[start:stop], number) for number, (start, stop) in enumerate(CUTS)]


def row(location: str) -> Upload:
    return Upload.objects.get(pk=location.rpartition("/")[2])


def test_parts_become_one_file_with_its_own_digests(
    bob: httpx2.Client, version: ModelVersion, locations: list[str], shared_cast: Cast
) -> None:
    assert bob.head(locations[0]).headers["Upload-Concat"] == "partial"
    before = bytes_used(version.model.project)
    answer = join(bob, version, *locations, xxh3=xxh3_128(BODY).hexdigest())
    assert answer.status_code == 201
    whole = answer.headers["Location"]
    head = bob.head(whole)
    assert (head.headers["Upload-Length"], head.headers["Upload-Offset"]) == (str(len(BODY)), str(len(BODY)))
    assert head.headers["Upload-Concat"] == "final;" + " ".join(locations)
    assert bytes_used(version.model.project) == before
    assert patch(bob, whole, len(BODY), b"").status_code == 403
    assert bob.delete(locations[0]).status_code == 409
    versions.version_submit(version=version, actor=shared_cast.actor("bob"))
    blob = upload_store(upload_id=row(whole).pk)
    assert (blob.sha256, blob.size) == (hashlib.sha256(BODY).hexdigest(), len(BODY))
    assert b"".join(artifact_store().open_range(blob.sha256)) == BODY
    assert VersionFile.objects.get(version=version).path == "model.onnx"
    assert {one.state for one in Upload.objects.all()} == {UploadState.STORED}
    assert not any(staging_path(one.pk).exists() for one in Upload.objects.all())


def test_joining_again_is_the_same_upload(bob: httpx2.Client, version: ModelVersion, locations: list[str]) -> None:
    first, again = join(bob, version, *locations), join(bob, version, *locations)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.headers["Location"] == again.headers["Location"]
    assert Upload.objects.filter(is_part=False).count() == 1


def test_what_cannot_be_joined_is_refused(
    bob: httpx2.Client, version: ModelVersion, shared_cast: Cast, locations: list[str]
) -> None:
    unknown = "/api/v1/uploads/00000000-0000-7000-8000-000000000000"
    other = part(bob, shared_cast.version(), BODY, 0)
    for chosen, status in (
        ([locations[0], locations[0]], 400),
        ([locations[0], unknown], 404),
        ([locations[0], other], 404),
        (locations[:2], 409),
    ):
        assert join(bob, version, *chosen).status_code == status
    half = part(bob, version, BODY, 3, is_sent=False)
    assert join(bob, version, *locations, half).status_code == 409
    for text in ("final;", "final;x", "partial;x", "whole"):
        words = {"Upload-Concat": text, "Upload-Metadata": metadata(version=str(version.pk), path="model.onnx")}
        answer = bob.post("/api/v1/uploads/", headers={**words, "Upload-Length": "1"})
        assert (answer.status_code, answer.json()["code"]) == (400, "upload_concat")
    assert not Upload.objects.filter(is_part=False).exists()


def test_parts_of_others_are_not_there(
    console: Any, bob: httpx2.Client, version: ModelVersion, shared_cast: Cast, locations: list[str]
) -> None:
    with console.client(shared_cast.token("alice"), **{"Tus-Resumable": "1.0.0"}) as alice:
        assert join(alice, version, *locations).status_code == 404


def test_version_with_loose_parts_is_not_submitted(
    version: ModelVersion, locations: list[str], shared_cast: Cast
) -> None:
    with pytest.raises(ValidationFailed, match="not uploaded completely"):
        versions.version_submit(version=version, actor=shared_cast.actor("bob"))


@pytest.mark.parametrize("promised", [{"sha256": "0" * 64}, {"xxh3": "0" * 32}], ids=["sha256", "xxh3"])
def test_other_bytes_than_promised_fail_and_leave_nothing(
    bob: httpx2.Client, version: ModelVersion, locations: list[str], promised: dict[str, str]
) -> None:
    whole = row(join(bob, version, *locations, **promised).headers["Location"])
    with pytest.raises(ValidationFailed, match="damaged"):
        upload_store(upload_id=whole.pk)
    assert {one.state for one in Upload.objects.all()} == {UploadState.FAILED, UploadState.TERMINATED}
    assert not any(staging_path(one.pk).exists() for one in Upload.objects.all())


@pytest.mark.parametrize(("name", "count"), [("sha256", 64), ("xxh3", 32)])
def test_digest_that_is_none_is_refused(
    bob: httpx2.Client, version: ModelVersion, locations: list[str], name: str, count: int
) -> None:
    for text in ("x" * count, "0" * (96 - count)):
        answer = join(bob, version, *locations, **{name: text})
        assert answer.status_code == 400
        [said] = answer.json()["errors"]
        assert (said["field"], said["message"]) == (name, f"The digest must be {count} hexadecimal digits.")


def test_ended_whole_takes_its_parts_along(
    bob: httpx2.Client, version: ModelVersion, locations: list[str], shared_cast: Cast
) -> None:
    whole = row(join(bob, version, *locations).headers["Location"])
    upload_terminate(upload_id=whole.pk, actor=shared_cast.actor("bob"))
    assert {one.state for one in Upload.objects.all()} == {UploadState.TERMINATED}
    assert not any(staging_path(one.pk).exists() for one in Upload.objects.all())


def test_loose_parts_expire_and_joined_ones_only_with_their_whole(
    bob: httpx2.Client, version: ModelVersion, locations: list[str]
) -> None:
    late = timezone.now()
    whole = row(join(bob, version, *locations).headers["Location"])
    Upload.objects.filter(is_part=True).update(expires_at=late)
    assert uploads_expire(timezone.now()) == 0
    Upload.objects.filter(pk=whole.pk).update(expires_at=late)
    assert uploads_expire(timezone.now()) == 1
    assert {one.state for one in Upload.objects.all()} == {UploadState.TERMINATED}


def test_lost_part_is_a_sentence(bob: httpx2.Client, version: ModelVersion, locations: list[str]) -> None:
    whole = row(join(bob, version, *locations).headers["Location"])
    staging_path(row(locations[1]).pk).unlink()
    with pytest.raises(StorageFailed, match="cannot be read"):
        upload_store(upload_id=whole.pk)


class Died(Exception):
    """Instead of a kill -9."""


@pytest.mark.parametrize("call", ["link", "ftruncate", "copy_file_range", "fsync", "unlink"])
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_joining_goes_on_wherever_the_worker_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, turn: int
) -> None:
    bodies = [os.urandom(70_000), os.urandom(10), os.urandom(200_000)]
    pieces = []
    for number, body in enumerate(bodies):
        (tmp_path / str(number)).write_bytes(body)
        pieces.append((tmp_path / str(number), len(body)))
    monkeypatch.setattr(parts_service, "_COPY_BYTES", 64_000)
    seen: list[str] = []

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            seen.append(call)
            if len(seen) == turn:
                raise Died
            return real(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patched:
        owner: Any = Path if call == "unlink" else os
        patched.setattr(owner, call, dying(getattr(owner, call)))
        with contextlib.suppress(Died):
            join_files(tmp_path / "whole", pieces)
    join_files(tmp_path / "whole", pieces)
    assert (tmp_path / "whole").read_bytes() == b"".join(bodies)
    assert [one.name for one in tmp_path.iterdir()] == ["whole"]
