"""Bearer tokens of people, service accounts, CI and nodes."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from console.middleware.request_context import facts_of
from registry.models import ApiToken, ServingNode, User
from registry.services import fleet, tokens

API_PREFIX = "flo_"
MAX_BEARER = 512


class NodePrincipal:
    """What ``request.user`` is for a node: known, but no person. Only views that ask for a node let it in."""

    is_authenticated = True
    is_anonymous = False
    is_active = True

    def __init__(self, node: ServingNode) -> None:
        self.node = node

    @property
    def pk(self) -> Any:
        """Id of the node."""
        return self.node.pk


def read_bearer(authorization: str) -> str | None:
    """Return the credential of an Authorization header, None when it is of another scheme."""
    scheme, _space, credential = authorization.strip().partition(" ")
    return credential.strip()[:MAX_BEARER] if scheme.lower() == "bearer" else None


def authenticate_token(credential: str, ip: str | None) -> tuple[User, ApiToken] | None:
    """Return the owner and the token of a bearer text; None when it is unknown, revoked or expired.

    Raises:
        PermissionDenied: the token is good, but not for callers from ``ip``.
    """
    if not credential.startswith(API_PREFIX):
        return None
    token = tokens.token_authenticate(credential, ip=ip)
    return (token.owner, token) if token is not None else None


class TokenAuthentication(BaseAuthentication):
    """Reads ``Authorization: Bearer flo_<id>_<secret>``, or a node's own token."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Return (user, token), (NodePrincipal, node), or None without such a header; a bad token is 401."""
        credential = read_bearer(request.headers.get("Authorization", ""))
        if credential is None:
            return None
        found = authenticate_token(credential, facts_of(request._request).ip)
        if found is not None:
            return found
        node = None if credential.startswith(API_PREFIX) else fleet.node_authenticate(credential)
        if node is None:
            raise AuthenticationFailed(_("The token is unknown, expired or revoked."))
        return NodePrincipal(node), node

    def authenticate_header(self, request: Request) -> str:
        """Make refusals 401 with this challenge."""
        return 'Bearer realm="flotilla"'
