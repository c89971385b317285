"""Model versions with their files and checks."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import Check, Deployment, ModelVersion, Operation, RegisteredModel, Upload, VersionFile


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version in a list, with the deployments that use it now."""

    version: ModelVersion
    deployments: tuple[Deployment, ...]
    checks_passed: int
    checks_warned: int
    checks_failed: int


@dataclass(frozen=True, slots=True)
class VersionDetail:
    """Everything a version's page shows."""

    version: ModelVersion
    files: tuple[VersionFile, ...]
    uploads: tuple[Upload, ...]
    checks: tuple[Check, ...]
    operation: Operation | None
    deployments: tuple[Deployment, ...]


def versions_visible_to(actor: Actor) -> QuerySet[ModelVersion]:
    """Return versions of the actor's projects, with model, project and author, newest first."""
    raise NotImplementedError


def version_get(actor: Actor, version_id: uuid.UUID | str) -> ModelVersion:
    """Return a version by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    raise NotImplementedError


def version_by_number(model: RegisteredModel, number: int) -> ModelVersion:
    """Return a version of a model by number.

    Raises:
        NotFound: there is none.
    """
    raise NotImplementedError


def version_rows(model: RegisteredModel) -> list[VersionRow]:
    """Return a model's versions for a list, newest first, abandoned ones left out."""
    raise NotImplementedError


def version_detail(version: ModelVersion) -> VersionDetail:
    """Return everything a version's page shows."""
    raise NotImplementedError


def versions_deployable(model: RegisteredModel) -> QuerySet[ModelVersion]:
    """Return ready versions of a model, newest first."""
    raise NotImplementedError


def upload_get(actor: Actor, upload_id: uuid.UUID | str) -> Upload:
    """Return an upload of the actor's own.

    Raises:
        NotFound: it does not exist or belongs to somebody else.
    """
    raise NotImplementedError
