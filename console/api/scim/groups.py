"""Groups that an identity provider keeps: what its mappings give to a group, its members have at once.

A token sees the groups of its own provider. Source: RFC 7644; the forms that Okta and Microsoft Entra send.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.scim.documents import MOST_ROWS, group_document, list_document
from console.api.scim.views import ScimView, key_of, page_of
from registry.domain.scim_groups import GroupChange, group_conditions, group_of, group_patch_of
from registry.errors import PermissionDenied
from registry.models import ScimGroup, SsoProvider, User
from registry.services import scim_groups as services

# With their members groups are long, so that a page has few of them.
_MOST_WITH_MEMBERS = 20


class GroupView(ScimView):
    """Base of both."""

    def groups(self) -> QuerySet[ScimGroup]:
        """Return the groups of the token's provider, with members only if they are asked for."""
        rows = ScimGroup.objects.filter(provider=self.token.provider).order_by("created_at", "pk")
        if self.has_members:
            members = User.objects.only("pk", "username").order_by("username")
            rows = rows.prefetch_related(Prefetch("members", members))
        return rows if self.token.provider is not None else rows.none()

    @property
    def has_members(self) -> bool:
        """Say whether the answer names the members."""
        asked, left_out = (self._names(name) for name in ("attributes", "excludedAttributes"))
        return "members" in asked if asked else "members" not in left_out

    def _names(self, parameter: str) -> set[str]:
        return {
            name.strip().lower() for name in self.request.query_params.get(parameter, "").split(",") if name.strip()
        }

    def document(self, group: ScimGroup) -> dict[str, Any]:
        """Return a group as it is asked for."""
        return group_document(group, has_members=self.has_members)


class Groups(GroupView):
    """The groups of a provider."""

    def get(self, request: Request) -> Response:
        """Return a page, perhaps filtered."""
        rows = self.groups()
        if wanted := request.query_params.get("filter"):
            for column, value in group_conditions(wanted):
                rows = rows.filter(**{column: key_of(value) if column in ("pk", "members") else value})
        start, count = page_of(request, _MOST_WITH_MEMBERS if self.has_members else MOST_ROWS)
        shown = [self.document(group) for group in rows[start - 1 : start - 1 + count]]
        return Response(list_document(shown, total=rows.count(), start=start))

    def post(self, request: Request) -> Response:
        """Make a group."""
        given = group_of(self.body())
        made = services.scim_group_create(
            provider=self._provider(), names=given.names, steps=given.steps, actor=self.actor
        )
        document = self.document(made)
        return Response(document, status=201, headers={"Location": document["meta"]["location"]})

    def _provider(self) -> SsoProvider:
        if self.token.provider is None:
            raise PermissionDenied(
                _("This token belongs to no provider, so its groups give nothing; make one that does.")
            )
        return self.token.provider


class OneGroup(GroupView):
    """One group."""

    def group(self) -> ScimGroup:
        """Return the group of the address. Raises Http404."""
        found = self.groups().filter(pk=self.kwargs["group"]).first()
        if found is None:
            raise Http404
        return found

    def get(self, request: Request, group: uuid.UUID) -> Response:
        """Return it."""
        return Response(self.document(self.group()))

    def put(self, request: Request, group: uuid.UUID) -> Response:
        """Replace names and members."""
        self._change(group_of(self.body()))
        return Response(self.document(self.group()))

    def patch(self, request: Request, group: uuid.UUID) -> Response:
        """Change parts of it. The answer is empty unless it names attributes: members may be many."""
        self._change(group_patch_of(self.body()))
        if not request.query_params.get("attributes"):
            return Response(status=204)
        return Response(self.document(self.group()))

    def delete(self, request: Request, group: uuid.UUID) -> Response:
        """Delete it, and take what it gave."""
        services.scim_group_delete(group=self.group(), actor=self.actor)
        return Response(status=204)

    def _change(self, change: GroupChange) -> None:
        services.scim_group_update(group=self.group(), names=change.names, steps=change.steps, actor=self.actor)
