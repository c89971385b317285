"""Where somebody is a member, read once while a page is made that asks for it several times."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from registry.models import Membership
from registry.selectors.prepared import Prepared

_OF_USER = Prepared(
    lambda user: Membership.objects.filter(user_id=user).select_related("project").order_by("project__slug")
)
_memberships: ContextVar[dict[uuid.UUID, tuple[Membership, ...]] | None] = ContextVar("memberships", default=None)


@contextmanager
def memberships_remembered() -> Iterator[None]:
    """Remember inside what ``memberships_of`` has read. For what only reads: a change meanwhile goes unnoticed."""
    token = _memberships.set({})
    try:
        yield
    finally:
        _memberships.reset(token)


def memberships_of(user_id: uuid.UUID) -> tuple[Membership, ...] | None:
    """Return somebody's memberships with their projects, by slug; None where nothing is remembered."""
    known = _memberships.get()
    if known is None:
        return None
    if user_id not in known:
        known[user_id] = tuple(_OF_USER(user=user_id))
    return known[user_id]
