"""Quotas of a project."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.views import ApiView
from registry.models import Project
from registry.selectors.quotas import quotas_of
from registry.services.quotas import MAX_BYTES, MAX_COUNT, quota_set


class QuotaSerializer(serializers.Serializer[Any]):
    """A limit and what is used of it."""

    used = serializers.IntegerField()
    limit = serializers.IntegerField()


class QuotasSerializer(serializers.Serializer[Any]):
    """Bytes of files, versions that were not refused or given up, nodes of the fleets deployed on."""

    bytes = QuotaSerializer()
    versions = QuotaSerializer()
    nodes = QuotaSerializer()


class QuotasChange(serializers.Serializer[Any]):
    """New limits; those left out stay."""

    bytes = serializers.IntegerField(required=False, min_value=0, max_value=MAX_BYTES)
    versions = serializers.IntegerField(required=False, min_value=0, max_value=MAX_COUNT)
    nodes = serializers.IntegerField(required=False, min_value=0, max_value=MAX_COUNT)


class ProjectQuotas(ApiView):
    """What a project may use, and what it does. The ETag is that of the limits."""

    write_scope = "admin"

    @extend_schema(summary="Read quotas", responses=QuotasSerializer)
    def get(self, request: Request, project: str) -> Response:
        return self._answer(self.project)

    @extend_schema(summary="Change quotas", request=QuotasChange, responses=QuotasSerializer)
    def patch(self, request: Request, project: str) -> Response:
        with matched(request, self.project, _limits) as row:
            changed = quota_set(project=row, **self.read(QuotasChange), actor=self.actor)
        return self._answer(changed)

    def _answer(self, project: Project) -> Response:
        document = {quota.name: {"used": quota.used, "limit": quota.limit} for quota in quotas_of(project)}
        return tagged(self.request, document, version=_limits(project))


def _limits(project: Project) -> dict[str, int]:
    return {"bytes": project.quota_bytes, "versions": project.quota_versions, "nodes": project.quota_nodes}
