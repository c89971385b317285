"""Turns whoever a request authenticated as into the actor of a service call."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework.exceptions import NotAuthenticated

from console.middleware.request_context import RequestFacts, facts_of
from registry.domain.actors import Actor
from registry.models import ApiToken, User


def actor_from(user: Any, token: Any, facts: RequestFacts) -> Actor:
    """Return the actor for a user and possibly a token of theirs.

    Raises:
        NotAuthenticated: the caller is nobody, a node, which acts only through its own addresses, or the session of
            a service account, which has none.
    """
    if not isinstance(user, User) or not user.is_active:
        raise NotAuthenticated
    api_token = token if isinstance(token, ApiToken) else None
    if user.is_service and api_token is None:
        raise NotAuthenticated
    return Actor.person(user, token=api_token, ip=facts.ip, request_id=facts.request_id)


def actor_of(request: Any) -> Actor:
    """Return the actor of a Django or REST framework request. Raises NotAuthenticated for nobody and for nodes."""
    plain: HttpRequest = getattr(request, "_request", request)
    return actor_from(request.user, getattr(request, "auth", None), facts_of(plain))
