"""Who may read which content."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import QuerySet
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
    return _readable(actor).filter(blob__sha256=sha256).exists()


def known_sizes(actor: Actor, sizes: Collection[int]) -> list[int]:
    """Return those sizes in bytes at which the actor may read some blob: only there is a digest worth asking about."""
    found = _readable(actor).filter(blob__size__in=sizes)
    return sorted(found.order_by().values_list("blob__size", flat=True).distinct())


def _readable(actor: Actor) -> QuerySet[VersionFile]:
    rows = VersionFile.objects.filter(version__model__project__in=projects_of(actor))
    return rows.exclude(version__state__in=_GONE)
