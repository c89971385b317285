"""What a project asks of new versions, with what is usual filled in."""

from __future__ import annotations

from django.conf import settings

from registry.domain.licences import LicencePolicy
from registry.domain.paths import MAX_FILES
from registry.domain.sizes import Limit, read_limits
from registry.models import Project


def site_limits() -> dict[str, int]:
    """Return the most that any version of this installation may have, by measure."""
    found = {"file_bytes": settings.MAX_UPLOAD_BYTES, "files": MAX_FILES}
    if settings.MAX_VERSION_BYTES:
        found["total_bytes"] = settings.MAX_VERSION_BYTES
    return found


def size_limits_of(project: Project) -> dict[str, Limit]:
    """Return the limits that versions of a project are held to."""
    return read_limits(project.size_limits, site_limits())


def licence_policy_of(project: Project) -> LicencePolicy:
    """Return what a project thinks of licences."""
    return LicencePolicy.from_json(project.licence_policy)
