"""What sets of declarative files own: of a project, or of the site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, require_match, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.apply_sets import ApplySetSerializer, ApplySetWrite, ThingsQuery, ThingsSerializer
from console.api.views import ApiView
from registry.errors import NotFound
from registry.models import ApplySet, Project
from registry.selectors.apply_sets import apply_sets, owned_things
from registry.selectors.permissions import can
from registry.services import apply_sets as services

THINGS_AT_ONCE = 200


class ApplySetView(ApiView):
    """Base: the sets of the project of the address, or of the site."""

    def place(self) -> Project | None:
        """Return the project; None for the site, whose sets site administrators see."""
        if "project" in self.kwargs:
            return self.project
        if not can(self.actor, "site.environments"):
            raise NotFound(_("There is no such set."))
        return None


class ApplySetList(ApplySetView):
    """All of them."""

    listing = Listing(("name",), orderings=("name", "created_at"))

    @extend_schema(summary="List apply sets", responses=paged(ApplySetSerializer))
    def get(self, request: Request, **_address: str) -> Response:
        return self.page(apply_sets(self.place()), ApplySetSerializer)


class SiteApplySetList(ApplySetList):
    """Those of the site."""


class ApplySetItem(ApplySetView):
    """One of them."""

    @extend_schema(summary="Read an apply set", responses=ApplySetSerializer)
    def get(self, request: Request, name: str, **_address: str) -> Response:
        found = apply_sets(self.place()).filter(name=name).first()
        if found is None:
            raise NotFound(_("There is no such set."))
        return tagged(request, _document(found))

    @extend_schema(
        summary="Note what an apply set owns",
        description="What `flotilla apply --set NAME` does at its end. A new set takes `If-None-Match: *`.",
        request=ApplySetWrite,
        responses={200: ApplySetSerializer, 201: ApplySetSerializer},
    )
    def put(self, request: Request, name: str, **_address: str) -> Response:
        place, given = self.place(), self.read(ApplySetWrite)
        with self._found(request, place, name) as found:
            row = services.apply_set_record(
                project=place, name=name, members=given["members"], apply_set=found, actor=self.actor
            )
        answer = tagged(request, _document(row))
        answer.status_code = 200 if found is not None else 201
        return answer

    @extend_schema(summary="Forget an apply set", description="What it owned stays.", responses={204: None})
    def delete(self, request: Request, name: str, **_address: str) -> Response:
        with self._found(request, self.place(), name) as found:
            if found is None:
                raise NotFound(_("There is no such set."))
            services.apply_set_forget(apply_set=found, actor=self.actor)
        return Response(status=204)

    @contextmanager
    def _found(self, request: Request, place: Project | None, name: str) -> Iterator[ApplySet | None]:
        found = apply_sets(place).filter(name=name).first()
        if found is None:
            require_match(request, None)
            yield None
            return
        with matched(request, found, _document) as row:
            yield row


class SiteApplySetItem(ApplySetItem):
    """One of the site."""


class ApplySetThings(ApplySetView):
    """What became of the things of a set."""

    queries = tuple(ThingsQuery().fields)

    @extend_schema(
        summary="Read what became of the things of an apply set",
        description="Whether each is as it was applied, was changed since, or is gone; and what pruning it would do.",
        parameters=[ThingsQuery],
        responses=ThingsSerializer,
    )
    def get(self, request: Request, name: str, **_address: str) -> Response:
        query = ThingsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        found = apply_sets(self.place()).filter(name=name).first()
        if found is None:
            raise NotFound(_("There is no such set."))
        start = query.validated_data["start"]
        end = start + THINGS_AT_ONCE
        document = {
            "count": len(found.members),
            "next": end if end < len(found.members) else None,
            "things": owned_things(found, found.members[start:end]),
        }
        return Response(ThingsSerializer(document).data)


class SiteApplySetThings(ApplySetThings):
    """Those of a set of the site."""


def _document(row: ApplySet) -> dict[str, Any]:
    return dict(ApplySetSerializer(row).data)
