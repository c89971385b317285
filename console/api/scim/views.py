"""SCIM 2.0 for identity providers: they make accounts here, keep them true, and block them when people leave.

Groups are in console/api/scim/groups.py.

Service accounts are not shown. Of a site administrator SCIM changes nothing but whether they are blocked.
Source: RFC 7644.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any, cast

from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext as _
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.parsers import BoundedJsonParser
from console.api.scim.documents import (
    MOST_ROWS,
    error_document,
    list_document,
    resource_types,
    schema_documents,
    service_document,
    user_document,
)
from console.api.views import AlwaysJson
from console.identity.tokens import read_bearer
from console.middleware.problems import STATUS_BY_CODE
from console.middleware.request_context import facts_of
from registry.domain.actors import Actor
from registry.domain.scim import ScimProblem, changes_of, condition_of, patch_of
from registry.errors import PermissionDenied, RegistryError, ValidationFailed
from registry.models import ScimToken, SiteRole, User
from registry.services import people
from registry.services.scim_tokens import scim_authenticate

# Fields whose values nobody else may have.
_NAMES = frozenset({"username", "displayName"})


class ScimAuthentication(BaseAuthentication):
    """Reads ``Authorization: Bearer scim_<id>_<secret>``; nothing else lets in here, and it lets in nowhere else."""

    def authenticate(self, request: Request) -> tuple[Any, Any]:
        """Return (None, token). Raises NotAuthenticated or AuthenticationFailed."""
        credential = read_bearer(request.headers.get("Authorization", ""))
        if credential is None:
            raise NotAuthenticated
        token = scim_authenticate(credential, now=timezone.now())
        if token is None:
            raise AuthenticationFailed(_("The token is unknown or revoked."))
        return None, token

    def authenticate_header(self, request: Request) -> str:
        """Make refusals 401 with this challenge."""
        return 'Bearer realm="flotilla-scim"'


class ScimParser(BoundedJsonParser):
    """JSON under the name that the standard gives it."""

    media_type = "application/scim+json"


class ScimRenderer(JSONRenderer):
    """The same for answers."""

    media_type = "application/scim+json"


class ScimView(APIView):
    """Base of all: token, JSON, errors in the standard's form."""

    authentication_classes = [ScimAuthentication]
    permission_classes = [AllowAny]
    parser_classes = [ScimParser, BoundedJsonParser]
    renderer_classes = [ScimRenderer]
    content_negotiation_class = AlwaysJson
    schema = None

    @property
    def token(self) -> ScimToken:
        """Return the token of the provider."""
        return cast(ScimToken, self.request.auth)

    @property
    def actor(self) -> Actor:
        """Return the provider as actor; it may do what these views do."""
        token = self.token
        facts = facts_of(self.request._request)
        return dataclasses.replace(Actor.system(f"SCIM: {token.name}"), ip=facts.ip, request_id=facts.request_id)

    def body(self) -> dict[str, Any]:
        """Return the body. Raises ScimProblem when it is no object."""
        if not isinstance(self.request.data, dict):
            raise ScimProblem("invalidSyntax", _("The body is a JSON object."))
        return dict(self.request.data)

    def handle_exception(self, exc: Exception) -> Response:
        """Return the error in the standard's form."""
        if isinstance(exc, ScimProblem):
            return Response(error_document(400, str(exc), exc.kind), status=400)
        if isinstance(exc, ValidationFailed):
            taken = any(one.get("field") in _NAMES and "already" in one["message"] for one in exc.errors)
            status, kind = (409, "uniqueness") if taken else (400, "invalidValue")
            return Response(error_document(status, exc.message, kind), status=status)
        if isinstance(exc, RegistryError):
            status = STATUS_BY_CODE.get(exc.code, 400)
            return Response(error_document(status, exc.message), status=status)
        if isinstance(exc, Http404):
            return Response(error_document(404, _("There is no such resource.")), status=404)
        if isinstance(exc, APIException):
            headers = {"WWW-Authenticate": ScimAuthentication().authenticate_header(self.request)}
            named = headers if exc.status_code == 401 else {}
            return Response(error_document(exc.status_code, str(exc.detail)), status=exc.status_code, headers=named)
        raise exc

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep accounts out of every cache."""
        response.headers.setdefault("Cache-Control", "no-store")
        return super().finalize_response(request, response, *args, **kwargs)


class Users(ScimView):
    """Accounts of people."""

    def get(self, request: Request) -> Response:
        """Return a page, perhaps filtered."""
        rows = User.objects.filter(is_service=False).order_by("date_joined", "pk")
        if wanted := request.query_params.get("filter"):
            column, value = condition_of(wanted)
            rows = rows.filter(**{column: key_of(value) if column == "pk" else value})
        start, count = page_of(request, MOST_ROWS)
        shown = [user_document(user) for user in rows[start - 1 : start - 1 + count]]
        return Response(list_document(shown, total=rows.count(), start=start))

    def post(self, request: Request) -> Response:
        """Make an account without a password."""
        given = changes_of(self.body(), replaces=False)
        made = people.user_provision(
            username=given.pop("username", ""), provider=self.token.provider, actor=self.actor, **given
        )
        document = user_document(made)
        return Response(document, status=201, headers={"Location": document["meta"]["location"]})


class OneUser(ScimView):
    """One account."""

    def user(self) -> User:
        """Return the account of the address. Raises Http404."""
        found = User.objects.filter(pk=self.kwargs["user"], is_service=False).first()
        if found is None:
            raise Http404
        return found

    def get(self, request: Request, user: uuid.UUID) -> Response:
        """Return it."""
        return Response(user_document(self.user()))

    def put(self, request: Request, user: uuid.UUID) -> Response:
        """Replace what is kept of it."""
        return self._change(changes_of(self.body(), replaces=True))

    def patch(self, request: Request, user: uuid.UUID) -> Response:
        """Change parts of it."""
        return self._change(patch_of(self.body()))

    def delete(self, request: Request, user: uuid.UUID) -> Response:
        """Block it. Its history stays, so the account does as well."""
        people.user_set_active(user=self.user(), is_active=False, actor=self.actor)
        return Response(status=204)

    def _change(self, changes: dict[str, Any]) -> Response:
        user = self.user()
        changes = {name: value for name, value in changes.items() if getattr(user, name) != value}
        if user.site_role == SiteRole.ADMIN and changes.keys() - {"is_active"}:
            raise PermissionDenied(_("Of a site administrator SCIM changes nothing but “active”."))
        return Response(user_document(people.user_update(user=user, actor=self.actor, **changes)))


class ServiceConfig(ScimView):
    """What the service can do."""

    def get(self, request: Request) -> Response:
        """Return it."""
        return Response(service_document())


class ResourceTypes(ScimView):
    """The types of resources."""

    def get(self, request: Request, name: str = "") -> Response:
        """Return them, or the one of a name."""
        return Response(_all_or_one(resource_types(), name))


class Schemas(ScimView):
    """The attributes that are kept."""

    def get(self, request: Request, name: str = "") -> Response:
        """Return them, or those of one type."""
        return Response(_all_or_one(schema_documents(), name))


class Unknown(ScimView):
    """Every other address."""

    def get(self, request: Request, rest: str) -> Response:
        """Say so."""
        raise Http404

    post = put = patch = delete = get


def page_of(request: Request, most: int) -> tuple[int, int]:
    """Return the first row that is asked for, from 1, and how many, at most ``most``."""
    return max(1, _number(request, "startIndex", 1)), min(most, max(0, _number(request, "count", 100)))


def key_of(text: str) -> uuid.UUID:
    """Return an id; what is none is an id that nothing has."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.UUID(int=0)


def _all_or_one(rows: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    if not wanted:
        return list_document(rows, total=len(rows), start=1)
    found = next((row for row in rows if row["id"] == wanted), None)
    if found is None:
        raise Http404
    return found


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default
