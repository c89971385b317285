"""Authentication of the raw ASGI apps (uploads, streams), which stand before Django's middleware.

Sync and with database access: call through ``console.middleware.database.in_database_thread``.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.translation import gettext as _

from console.identity.actors import actor_from
from console.identity.session_rules import lacks_second_factor, second_factor_sentence, session_goes_on
from console.identity.tokens import authenticate_token, read_bearer
from console.middleware.request_context import facts_of
from registry.domain.actors import Actor
from registry.errors import PermissionDenied
from registry.models import User

Scope = Mapping[str, Any]


class _CsrfCheck(CsrfViewMiddleware):
    """Gives the reason instead of a page."""

    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason


def authenticate(scope: Scope, *, is_write: bool = False) -> Actor | None:
    """Return the actor of a bearer token or a session cookie; None for nobody.

    Raises:
        PermissionDenied: a session wants to write without a valid X-CSRFToken or from a foreign origin, or the token
            lacks the scope or may not be used from there, or the Host header is not one of ours.
    """
    request = ASGIRequest({**scope, "body": b""}, io.BytesIO())
    try:
        request.get_host()
    except DisallowedHost:
        raise PermissionDenied(_("This server does not answer to that host name.")) from None
    facts = facts_of(request)
    credential = read_bearer(request.headers.get("Authorization", ""))
    if credential is not None:
        found = authenticate_token(credential, facts.ip)
        if found is None:
            return None
        actor = actor_from(found[0], found[1], facts)
        if not actor.has_scope("write" if is_write else "read"):
            raise PermissionDenied(_("The token does not have the scope for this."))
        return actor
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if not key:
        return None
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    user = get_user(request)
    if not isinstance(user, User) or not session_goes_on(request, user):
        return None
    if lacks_second_factor(request, user):
        raise PermissionDenied(second_factor_sentence())
    if is_write:
        _require_csrf(request)
    return actor_from(user, None, facts)


def _require_csrf(request: HttpRequest) -> None:
    """Refuse a cookie-borne write that did not come from our own pages. Source: Django's CSRF protection."""
    check = _CsrfCheck(lambda _request: HttpResponse())
    check.process_request(request)
    reason = check.process_view(request, HttpResponse, (), {})
    if reason:
        raise PermissionDenied(
            _("The request does not prove that it comes from our own pages: %(why)s") % {"why": reason}
        )
