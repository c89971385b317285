"""Measurements of a version: ask for one, read what was found."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.measurements import MeasurementSerializer, MeasurementWrite
from console.api.v1.serializers.operations import OperationSerializer
from console.api.v1.versions import VersionView
from console.api.views import accepted
from registry.selectors import measurements as selectors
from registry.selectors.configs import config_by_number
from registry.selectors.fleet import node_named
from registry.services import measurements as services


class MeasurementList(VersionView):
    """Measurements of a version."""

    listing = Listing()

    @extend_schema(summary="List measurements", responses=paged(MeasurementSerializer))
    def get(self, request: Request, **_address: Any) -> Response:
        return self.page(selectors.measurements_of(self.version), MeasurementSerializer)

    @extend_schema(
        summary="Measure a version on a node",
        description="202: a worker loads a copy on the node, sends it requests, and takes it away again.",
        request=MeasurementWrite,
        responses={202: OperationSerializer},
    )
    def post(self, request: Request, **_address: Any) -> Response:
        version, given = self.version, self.read(MeasurementWrite)
        config = config_by_number(self.model, given["config"]) if given["config"] else None
        operation = services.measurement_start(
            version=version,
            node=node_named(self.actor, given["node"]),
            config=config,
            batch=given["batch"],
            instances=given["instances"],
            seconds=given["seconds"],
            shapes=given["shapes"],
            actor=self.actor,
        )
        return accepted(operation.pk, OperationSerializer(operation).data)


class MeasurementItem(VersionView):
    """One measurement."""

    @extend_schema(summary="Read a measurement", responses=MeasurementSerializer)
    def get(self, request: Request, measurement: uuid.UUID, **_address: Any) -> Response:
        found = selectors.measurement_get(self.actor, measurement)
        if found.version_id != self.version.pk:
            raise Http404
        return Response(MeasurementSerializer(found).data)
