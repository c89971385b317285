"""Permission checks as services use them."""

from __future__ import annotations

from typing import Any

from registry.domain.actors import Actor
from registry.errors import PermissionDenied
from registry.selectors.permissions import Allowed, Denied, can

__all__ = ["Allowed", "Denied", "can", "require"]


def require(actor: Actor, permission: str, obj: Any = None) -> None:
    """Do nothing when the actor may.

    Raises:
        PermissionDenied: with the sentence why not.
    """
    verdict = can(actor, permission, obj)
    if isinstance(verdict, Denied):
        raise PermissionDenied(verdict.reason)
