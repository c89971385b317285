"""Series for charts."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.v1.serializers.operations import MetricsQuery, SeriesAnswer
from console.api.views import ApiView
from registry.domain.actors import Actor
from registry.errors import ValidationFailed
from registry.selectors.deployments import deployment_get
from registry.selectors.fleet import fleet_by_slug, node_get
from registry.selectors.metrics import Query, series_many
from registry.services.permissions import require


class MetricsView(ApiView):
    """Request rate, latency percentiles, queue time, batch size, CPU, memory and GPU over time."""

    queries = tuple(MetricsQuery().fields)
    rate = "costly"

    @extend_schema(
        summary="Query series",
        description="Name one or more metrics, separated by commas. With a deployment: its numbers, for members of its "
        "project. Without: numbers of a fleet or a node as a whole.",
        parameters=[MetricsQuery],
        responses=SeriesAnswer,
    )
    def get(self, request: Request) -> Response:
        given = MetricsQuery(data=request.query_params)
        given.is_valid(raise_exception=True)
        query = _query(self.actor, dict(given.validated_data))
        names = [name for name in given.validated_data["metric"].split(",") if name]
        found = series_many([dataclasses.replace(query, metric=name) for name in names])
        return Response({"series": [dataclasses.asdict(one) for one in found]})


def _query(actor: Actor, given: dict[str, Any]) -> Query:
    """Return what the caller may see of what it asks for, with an empty metric."""
    end = given["end"] or timezone.now()
    start = given["start"] or end - timedelta(seconds=given["range_seconds"])
    model, fleet = "", None
    if given["deployment"]:
        deployment = deployment_get(actor, given["deployment"])
        model, fleet = deployment.served_name, deployment.fleet_id
    else:
        require(actor, "site.view")
        if given["by"] == "version" or given["version"]:
            raise ValidationFailed(_("Name a deployment to see its versions."))
        if given["fleet"]:
            fleet = fleet_by_slug(given["fleet"]).pk
    return Query(
        metric="",
        start=start,
        end=end,
        by=given["by"],
        model=model,
        version=given["version"],
        fleet=fleet,
        nodes=(node_get(actor, given["node"]).pk,) if given["node"] else (),
        step_seconds=given["step_seconds"],
    )
