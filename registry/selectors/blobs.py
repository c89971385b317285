"""Who may read which content."""

from __future__ import annotations

from registry.domain.actors import Actor
from registry.models import Blob, ServingNode


def blob_get(sha256: str) -> Blob:
    """Return a blob.

    Raises:
        NotFound: there is none.
    """
    raise NotImplementedError


def node_may_read(node: ServingNode, sha256: str) -> bool:
    """Say whether the digest is in the node's desired state."""
    raise NotImplementedError


def actor_may_read(actor: Actor, sha256: str) -> bool:
    """Say whether a version of the actor's projects holds the blob (rejected and abandoned ones do not count)."""
    raise NotImplementedError
