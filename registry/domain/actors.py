"""Who acts: a person, a token of somebody, or the system itself."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Person(Protocol):
    """What the domain knows of an account (``registry.models.User`` satisfies it)."""

    @property
    def id(self) -> uuid.UUID: ...
    @property
    def username(self) -> str: ...
    @property
    def site_role(self) -> str: ...
    @property
    def is_service(self) -> bool: ...
    @property
    def is_active(self) -> bool: ...


class Token(Protocol):
    """What the domain knows of a bearer token (``registry.models.ApiToken`` satisfies it)."""

    @property
    def id(self) -> uuid.UUID: ...
    @property
    def public_id(self) -> str: ...
    @property
    def scopes(self) -> Any: ...
    @property
    def project_id(self) -> uuid.UUID | None: ...
    @property
    def actor_name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller of a service. ``name`` is what audit rows show; ``is_system`` skips permission checks.

    ``user`` is None for the system and for anonymous callers (who may do nothing).
    """

    name: str
    user: Person | None = None
    token: Token | None = None
    ip: str | None = None
    request_id: str = ""
    is_system: bool = False

    @classmethod
    def system(cls, name: str) -> Actor:
        """Return the actor of a background job; it may do everything."""
        return cls(name=name, is_system=True)

    @classmethod
    def person(cls, user: Person, *, token: Token | None = None, ip: str | None = None, request_id: str = "") -> Actor:
        """Return the actor of a request by ``user``, possibly with a token of theirs, which may give it its name."""
        name = (token.actor_name if token is not None else "") or user.username
        return cls(name=name, user=user, token=token, ip=ip, request_id=request_id)

    @property
    def user_id(self) -> uuid.UUID | None:
        """Id of the account, or None."""
        return self.user.id if self.user is not None else None

    @property
    def token_id(self) -> uuid.UUID | None:
        """Id of the token that was used, or None."""
        return self.token.id if self.token is not None else None

    @property
    def only_project_id(self) -> uuid.UUID | None:
        """Id of the one project to which the token used is limited; None when nothing limits the caller."""
        return self.token.project_id if self.token is not None else None

    def has_scope(self, scope: str) -> bool:
        """Say whether the token used (if any) carries ``scope``; ``admin`` includes ``write`` includes ``read``."""
        if self.token is None:
            return True
        scopes: Sequence[str] = self.token.scopes
        wider = {"read": ("read", "write", "admin"), "write": ("write", "admin"), "admin": ("admin",)}
        return any(one in scopes for one in wider[scope])
