"""Rows for worker tests, made without services where those are not what is tested."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.utils import timezone

from registry.models import (
    Membership,
    ModelVersion,
    Operation,
    Project,
    RegisteredModel,
    Role,
    Upload,
    UploadState,
    User,
)
from registry.services.staging import staging_path


def make_user(**columns: object) -> User:
    return User.objects.create(username=f"user-{secrets.token_hex(4)}", **columns)


def make_model(slug: str = "mlp", owner: User | None = None) -> RegisteredModel:
    owner = owner or make_user()
    project, made = Project.objects.get_or_create(slug="default", defaults={"name": "Default"})
    if made:
        Membership.objects.create(project=project, user=owner, role=Role.ADMIN)
    return RegisteredModel.objects.create(project=project, slug=slug, owner=owner)


def make_version(model: RegisteredModel, files: dict[str, bytes], *, state: str = "validating") -> ModelVersion:
    """A submitted version whose files are received and lie in the staging folder."""
    version = ModelVersion.objects.create(model=model, state=state, author=model.owner)
    for path, content in files.items():
        upload = Upload.objects.create(
            version=version,
            owner=model.owner,
            path=path,
            length=len(content),
            offset=len(content),
            expected_sha256=hashlib.sha256(content).hexdigest(),
            state=UploadState.RECEIVED,
            expires_at=timezone.now() + timedelta(hours=1),
        )
        staged = staging_path(upload.pk)
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(content)
    return version


def make_operation(version: ModelVersion) -> Operation:
    return Operation.objects.create(
        kind="validate_version",
        queue="jobs",
        project=version.model.project,
        subject_type="version",
        subject_id=version.pk,
        actor=version.author,
    )
