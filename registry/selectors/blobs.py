"""Who may read which content."""

from __future__ import annotations

from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound
from registry.models import Blob, ServingNode, VersionFile, VersionState
from registry.selectors.accounts import projects_of
from registry.selectors.desired import wanted_routes, wanted_scratches

_GONE = (VersionState.REJECTED, VersionState.ABANDONED)


def blob_get(sha256: str) -> Blob:
    """Return a blob.

    Raises:
        NotFound: there is none.
    """
    blob = Blob.objects.filter(sha256=sha256).first()
    if blob is None:
        raise NotFound(_("There is no such content."))
    return blob


def node_may_read(node: ServingNode, sha256: str) -> bool:
    """Say whether the digest is in the node's desired state."""
    versions = {route.version_id for route in wanted_routes(node)}
    versions |= {scratch.version_id for scratch in wanted_scratches(node)}
    return VersionFile.objects.filter(blob__sha256=sha256, version__in=versions).exists()


def actor_may_read(actor: Actor, sha256: str) -> bool:
    """Say whether a version of the actor's projects holds the blob (rejected and abandoned ones do not count)."""
    return (
        VersionFile.objects.filter(blob__sha256=sha256, version__model__project__in=projects_of(actor))
        .exclude(version__state__in=_GONE)
        .exists()
    )
