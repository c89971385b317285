from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.errors import (
    Conflict,
    Immutable,
    InvalidTransition,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    StaleWrite,
    StorageFailed,
    ValidationFailed,
)
from registry.models import Blob, ModelVersion, Upload, VersionFile
from registry.selectors.blobs import actor_may_read
from registry.selectors.versions import version_detail
from registry.services import blobs, uploads, versions
from registry.storage import ArtifactStore, artifact_store

CONTENT = b"some bytes of a model" * 100
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def begin(world: Any, path: str = "model.onnx", length: int = len(CONTENT), **extra: Any) -> Upload:
    version = extra.pop("version", None) or versions.version_create(model=world.model(), actor=world.actor(world.carol))
    return uploads.upload_create(
        version=version, path=path, length=length, actor=world.actor(extra.pop("user", world.carol)), **extra
    )


def receive(upload: Upload, content: bytes = CONTENT) -> Upload:
    uploads.staging_path(upload.id).write_bytes(content)
    uploads.upload_advance(upload_id=upload.id, from_offset=0, to_offset=upload.length)
    return uploads.upload_received(upload_id=upload.id)


def test_the_offset_moves_only_from_where_it_is(world: Any) -> None:
    upload = begin(world, length=10)
    uploads.upload_advance(upload_id=upload.id, from_offset=0, to_offset=4)
    with pytest.raises(StaleWrite) as caught:
        uploads.upload_advance(upload_id=upload.id, from_offset=0, to_offset=6)
    assert caught.value.extra["offset"] == 4
    with pytest.raises(ValidationFailed):
        uploads.upload_advance(upload_id=upload.id, from_offset=4, to_offset=11)
    with pytest.raises(InvalidTransition):
        uploads.upload_received(upload_id=upload.id)
    uploads.upload_advance(upload_id=upload.id, from_offset=4, to_offset=10)
    assert uploads.upload_received(upload_id=upload.id).state == "received"
    assert uploads.upload_received(upload_id=upload.id).state == "received"
    with pytest.raises(InvalidTransition):
        uploads.upload_advance(upload_id=upload.id, from_offset=10, to_offset=10)


def test_stored_bytes_become_a_file_once(world: Any) -> None:
    upload = receive(begin(world, sha256=DIGEST))
    blob = uploads.upload_store(upload_id=upload.id)
    assert (blob.sha256, blob.size) == (DIGEST, len(CONTENT))
    assert uploads.upload_store(upload_id=upload.id) == blob
    assert b"".join(artifact_store().open_range(DIGEST)) == CONTENT
    assert VersionFile.objects.filter(version=upload.version).count() == 1
    assert [file.path for file in version_detail(upload.version).files] == ["model.onnx"]


def test_the_same_content_is_kept_once(world: Any) -> None:
    first, second = receive(begin(world)), receive(begin(world))
    assert uploads.upload_store(upload_id=first.id) == uploads.upload_store(upload_id=second.id)
    assert Blob.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_staged_bytes_go_after_the_commit(settings: Any) -> None:
    from registry.models import Membership, Project, RegisteredModel, User

    user = User.objects.create(username="u")
    project = Project.objects.create(slug="p", name="p")
    Membership.objects.create(project=project, user=user, role="publisher")
    model = RegisteredModel.objects.create(project=project, slug="m", owner=user)
    version = ModelVersion.objects.create(model=model, author=user)
    from registry.domain.actors import Actor

    upload = uploads.upload_create(version=version, path="a", length=len(CONTENT), actor=Actor.person(user))
    receive(upload)
    uploads.upload_store(upload_id=upload.id)
    assert not uploads.staging_path(upload.id).exists()


def test_a_damaged_upload_fails_with_one_sentence(world: Any) -> None:
    upload = receive(begin(world, sha256="0" * 64))
    with pytest.raises(ValidationFailed, match="damaged"):
        uploads.upload_store(upload_id=upload.id)
    upload.refresh_from_db()
    assert upload.state == "failed"
    assert "model.onnx" in upload.error


def test_a_short_file_fails(world: Any) -> None:
    upload = receive(begin(world), content=CONTENT[:-1])
    with pytest.raises(ValidationFailed, match="cut short"):
        uploads.upload_store(upload_id=upload.id)


def test_a_full_disk_leaves_the_upload_to_be_tried_again(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    def full(*args: Any, **extra: Any) -> None:
        raise OSError(28, "No space left on device")

    upload = receive(begin(world))
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(obstore, "put", full)
        with pytest.raises(StorageFailed, match="no space left on the disk"):
            uploads.upload_store(upload_id=upload.id)
    upload.refresh_from_db()
    assert upload.state == "received"
    assert uploads.upload_store(upload_id=upload.id).sha256 == DIGEST


@pytest.mark.parametrize("path", ["../x", "/x", "a\\b", "a//b", "", "a\nb"])
def test_bad_names_are_refused_at_once(world: Any, path: str) -> None:
    with pytest.raises(ValidationFailed):
        begin(world, path=path)


def test_lengths_and_quotas(world: Any, settings: Any) -> None:
    for length in (0, -1):
        with pytest.raises(ValidationFailed):
            begin(world, length=length)
    settings.MAX_UPLOAD_BYTES = 100
    with pytest.raises(QuotaExceeded):
        begin(world, length=101)
    world.project.quota_bytes = 150
    world.project.save()
    begin(world, length=100)
    with pytest.raises(QuotaExceeded, match="room for 50 bytes"):
        begin(world, length=51)


def test_a_path_is_taken_once(world: Any) -> None:
    upload = begin(world)
    with pytest.raises(Conflict):
        begin(world, version=upload.version)
    uploads.upload_store(upload_id=receive(upload).id)
    with pytest.raises(Conflict):
        begin(world, version=upload.version)


def test_only_members_who_publish_upload_and_only_while_uploading(world: Any) -> None:
    version = versions.version_create(model=world.model(), actor=world.actor(world.carol))
    for user in (world.dan, world.eve):
        with pytest.raises(PermissionDenied):
            begin(world, version=version, user=user)
    ready = world.ready(world.model())
    with pytest.raises(Immutable):
        begin(world, version=ready)


def test_only_the_owner_ends_an_upload(world: Any) -> None:
    upload = begin(world)
    with pytest.raises(NotFound):
        uploads.upload_terminate(upload_id=upload.id, actor=world.actor(world.alice))
    uploads.upload_terminate(upload_id=upload.id, actor=world.actor(world.carol))
    uploads.upload_terminate(upload_id=upload.id, actor=world.actor(world.carol))
    upload.refresh_from_db()
    assert upload.state == "terminated"


def test_expiry_ends_uploads_and_abandons_idle_versions(world: Any) -> None:
    upload = begin(world)
    later = timezone.now() + timedelta(hours=25)
    assert uploads.uploads_expire(timezone.now()) == 0
    assert uploads.uploads_expire(later) == 1
    upload.refresh_from_db()
    upload.version.refresh_from_db()
    assert (upload.state, upload.version.state) == ("terminated", "abandoned")


def test_expiry_leaves_versions_that_are_being_checked(world: Any) -> None:
    upload = receive(begin(world))
    versions.version_submit(version=upload.version, actor=world.actor(world.carol))
    assert uploads.uploads_expire(timezone.now() + timedelta(days=9)) == 0


def test_submit_needs_complete_files(world: Any) -> None:
    version = versions.version_create(model=world.model(), actor=world.actor(world.carol))
    actor = world.actor(world.carol)
    with pytest.raises(ValidationFailed, match="no files"):
        versions.version_submit(version=version, actor=actor)
    upload = begin(world, version=version)
    with pytest.raises(ValidationFailed, match=r"model\.onnx"):
        versions.version_submit(version=version, actor=actor)
    receive(upload)
    operation = versions.version_submit(version=version, actor=actor)
    assert (operation.kind, operation.queue, operation.subject_id) == ("validate_version", "jobs", version.id)
    assert version.state == "validating"
    with pytest.raises(InvalidTransition):
        versions.version_submit(version=version, actor=actor)


def test_a_file_cannot_be_a_folder_at_submit(world: Any) -> None:
    version = versions.version_create(model=world.model(), actor=world.actor(world.carol))
    for path in ("a", "a/b"):
        receive(begin(world, path=path, version=version))
    with pytest.raises(ValidationFailed, match="cannot be inside"):
        versions.version_submit(version=version, actor=world.actor(world.carol))


def test_content_is_reused_only_by_those_who_can_read_it(world: Any) -> None:
    model = world.model()
    world.ready(model, content=b"secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    assert actor_may_read(world.actor(world.dan), digest)
    assert not actor_may_read(world.actor(world.eve), digest)
    foreign = versions.version_create(model=world.model(project=world.other), actor=world.actor(world.eve))
    with pytest.raises(NotFound):
        versions.version_attach_blob(version=foreign, path="a", sha256=digest, actor=world.actor(world.eve))
    own = versions.version_create(model=model, actor=world.actor(world.carol))
    versions.version_attach_blob(version=own, path="a", sha256=digest, actor=world.actor(world.carol))
    assert own.files.count() == 1


def test_rejected_versions_let_their_content_go(world: Any) -> None:
    upload = receive(begin(world))
    versions.version_submit(version=upload.version, actor=world.actor(world.carol))
    uploads.upload_store(upload_id=upload.id)
    versions.version_reject(version=upload.version, reason="It is not ONNX.")
    versions.version_reject(version=upload.version, reason="again")
    version = ModelVersion.objects.get(pk=upload.version_id)
    assert (version.state, version.state_reason, version.number) == ("rejected", "It is not ONNX.", None)
    assert version.metadata["files"] == ["model.onnx"]
    assert not actor_may_read(world.actor(world.carol), DIGEST)
    later = timezone.now() + timedelta(days=2)
    assert blobs.blobs_collect(timezone.now()) == 0
    assert blobs.blobs_collect(later) == 1
    assert not artifact_store().exists(DIGEST)
    assert blobs.blobs_collect(later) == 0


def test_content_in_use_is_never_collected(world: Any) -> None:
    uploads.upload_store(upload_id=receive(begin(world)).id)
    assert blobs.blobs_collect(timezone.now() + timedelta(days=2)) == 0
    assert artifact_store().exists(DIGEST)


def test_the_store_reads_ranges(tmp_path: Any) -> None:
    store = ArtifactStore((tmp_path / "store").as_uri())
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    assert store.put_file(file, DIGEST) == f"blobs/{DIGEST[:2]}/{DIGEST}"
    assert b"".join(store.open_range(DIGEST, 5, 25)) == CONTENT[5:25]
    assert b"".join(store.open_range(DIGEST, len(CONTENT))) == b""
    assert store.presign(DIGEST) is None
    store.copy_to(DIGEST, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    store.delete(DIGEST)
    store.delete(DIGEST)
    with pytest.raises(StorageFailed, match="not there"):
        store.open_range(DIGEST)


def test_what_dead_processes_left_in_the_staging_folder_goes(world: Any, settings: Any) -> None:
    running, ended = begin(world), begin(world)
    for upload in (running, ended):
        uploads.staging_path(upload.id).parent.mkdir(parents=True, exist_ok=True)
        uploads.staging_path(upload.id).write_bytes(b"some")
    folder = uploads.staging_path(running.id).parent
    uploads.upload_terminate(upload_id=ended.id, actor=world.actor(world.carol))
    uploads.staging_path(ended.id).write_bytes(b"left behind")
    (folder / f"check-{running.version_id}").mkdir()
    (folder / "somebody-elses").write_bytes(b"kept")
    now = timezone.now()
    assert uploads.staged_collect(now) == 0
    assert uploads.staged_collect(now + timedelta(hours=2)) == 1
    assert not uploads.staging_path(ended.id).exists()
    assert uploads.staged_collect(now + timedelta(hours=25)) == 1
    assert sorted(one.name for one in folder.iterdir()) == sorted([str(running.id), "somebody-elses"])


def test_staging_folder_that_is_not_there_is_no_error(settings: Any, tmp_path: Any) -> None:
    settings.STAGING_DIR = tmp_path / "none"
    assert uploads.staged_collect(timezone.now()) == 0
