"""Environments with their protection, and the fleets in them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.environments import (
    EnvironmentChange,
    EnvironmentSerializer,
    EnvironmentWrite,
    FleetChange,
    FleetSerializer,
    FleetWrite,
    OpeningSerializer,
)
from console.api.views import ApiView
from registry.domain.windows import closing_at
from registry.errors import ValidationFailed
from registry.models import Environment, Fleet
from registry.selectors import clock, protection
from registry.selectors import fleet as selectors
from registry.services import environments as services

_FAR = timedelta(days=3650)


class EnvironmentList(ApiView):
    """Environments in their order."""

    listing = Listing(("slug",), order=("position",), orderings=("position", "slug", "created_at"))

    write_scope = "admin"

    @extend_schema(summary="List environments", responses=paged(EnvironmentSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.environments().prefetch_related("approvers", "bypassers")
        return self.page(rows, EnvironmentSerializer)

    @extend_schema(summary="Create an environment", request=EnvironmentWrite, responses={201: EnvironmentSerializer})
    def post(self, request: Request) -> Response:
        environment = services.environment_create(**self.read(EnvironmentWrite), actor=self.actor)
        return Response(EnvironmentSerializer(environment).data, status=201)


class EnvironmentItem(ApiView):
    """One environment's protection."""

    write_scope = "admin"

    @extend_schema(summary="Read an environment", responses=EnvironmentSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return tagged(request, _environment_document(selectors.environment_get(slug)))

    @extend_schema(
        summary="Change an environment",
        description="What waits there is judged anew by the new rules.",
        request=EnvironmentChange,
        responses=EnvironmentSerializer,
    )
    def patch(self, request: Request, slug: str) -> Response:
        with matched(request, selectors.environment_get(slug), _environment_document) as row:
            changed = services.environment_update(environment=row, **self.read(EnvironmentChange), actor=self.actor)
        return tagged(request, _environment_document(changed))

    @extend_schema(
        summary="Delete an environment with its fleets",
        description="Refused while a model is deployed there. Its nodes stay.",
        responses={204: None},
    )
    def delete(self, request: Request, slug: str) -> Response:
        with matched(request, selectors.environment_get(slug), _environment_document) as row:
            services.environment_delete(environment=row, actor=self.actor)
        return Response(status=204)


class EnvironmentWindows(ApiView):
    """When changes may start in an environment."""

    queries = ("at",)

    @extend_schema(
        summary="Say when changes may start",
        description="By the environment's windows alone, from the time `at` on (now, when it is not given).",
        parameters=[OpenApiParameter("at", OpenApiTypes.DATETIME)],
        responses=OpeningSerializer,
    )
    def get(self, request: Request, slug: str) -> Response:
        environment = selectors.environment_get(slug)
        at = _moment(request.query_params.get("at", ""))
        opens = protection.opens_at(environment, at)
        closed_by = "" if opens == at else closing_at(protection.windows_of(environment), at)
        document = {"at": at, "is_open": opens == at, "opens_at": opens, "closed_by": closed_by}
        return Response(OpeningSerializer(document).data)


class FleetList(ApiView):
    """Fleets."""

    listing = Listing(("slug", "environment__slug"), orderings=("slug", "created_at"))

    write_scope = "admin"

    @extend_schema(summary="List fleets", responses=paged(FleetSerializer))
    def get(self, request: Request) -> Response:
        return self.page(selectors.fleets(), FleetSerializer)

    @extend_schema(summary="Create a fleet", request=FleetWrite, responses={201: FleetSerializer})
    def post(self, request: Request) -> Response:
        given = self.read(FleetWrite)
        environment = selectors.environment_get(given.pop("environment"))
        fleet = services.fleet_create(**given, environment=environment, actor=self.actor)
        return Response(FleetSerializer(fleet).data, status=201)


class FleetItem(ApiView):
    """One fleet."""

    write_scope = "admin"

    @extend_schema(summary="Read a fleet", responses=FleetSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return tagged(request, _fleet_document(selectors.fleet_by_slug(slug)))

    @extend_schema(
        summary="Change a fleet",
        description="With another selector, nodes that leave unload what the fleet deploys and nodes that join load "
        "it; approval requests that wait become void.",
        request=FleetChange,
        responses=FleetSerializer,
    )
    def patch(self, request: Request, slug: str) -> Response:
        with matched(request, selectors.fleet_by_slug(slug), _fleet_document) as row:
            changed = services.fleet_update(fleet=row, **self.read(FleetChange), actor=self.actor)
        return tagged(request, _fleet_document(changed))

    @extend_schema(
        summary="Delete a fleet",
        description="Refused while a model is deployed there. Its nodes stay.",
        responses={204: None},
    )
    def delete(self, request: Request, slug: str) -> Response:
        with matched(request, selectors.fleet_by_slug(slug), _fleet_document) as row:
            services.fleet_delete(fleet=row, actor=self.actor)
        return Response(status=204)


def _environment_document(environment: Environment) -> dict[str, Any]:
    return dict(EnvironmentSerializer(environment).data)


def _fleet_document(fleet: Fleet) -> dict[str, Any]:
    return dict(FleetSerializer(fleet).data)


def _moment(text: str) -> datetime:
    """Return the time that was asked about, the database's now when none was.

    Raises:
        ValidationFailed: it is no time with an offset, or too far from now.
    """
    now = clock.database_now()
    if not text:
        return now
    try:
        asked = parse_datetime(text)
    except ValueError:
        asked = None
    if asked is None or asked.tzinfo is None or abs(asked - now) > _FAR:
        message = _("Name a time with its offset, such as 2026-11-22T18:00:00Z, at most ten years from now.")
        raise ValidationFailed(message, errors=[{"field": "at", "message": message}])
    return asked
