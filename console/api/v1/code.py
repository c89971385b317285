"""The code in versions: what it is, what runs of it, and the permission for it."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.catalog import VersionSerializer
from console.api.v1.versions import VersionView
from console.api.views import ApiView
from registry.models import WITH_ALIASES, ModelVersion
from registry.selectors import code as selectors
from registry.services import code as services


class CodeFileSerializer(serializers.Serializer[Any]):
    """A part of a version that is code, and why it counts as that."""

    path = serializers.CharField()
    why = serializers.CharField()


class CodeEffectSerializer(serializers.Serializer[Any]):
    """What withdrawing the permission does to a deployment.

    ``weight`` is the share of requests (%) that the version answers, ``rest`` that of versions that could answer
    instead; ``request_rate`` is of the last five minutes, 1/s.
    """

    deployment = serializers.UUIDField(source="deployment.pk")
    served_name = serializers.CharField(source="deployment.served_name")
    fleet = serializers.CharField(source="deployment.fleet.slug")
    environment = serializers.CharField(source="deployment.fleet.environment.slug")
    weight = serializers.IntegerField()
    rest = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    request_rate = serializers.FloatField()


class VersionCodeSerializer(serializers.Serializer[Any]):
    """The code of a version, who let nodes run it or took that back, and where it is deployed."""

    files = CodeFileSerializer(source="version.code_files", many=True)
    permitted_by = serializers.CharField(source="version.code_permitted_by.username", allow_null=True, default=None)
    permitted_at = serializers.DateTimeField(source="version.code_permitted_at", allow_null=True)
    withdrawn_by = serializers.CharField(source="version.code_withdrawn_by.username", allow_null=True, default=None)
    withdrawn_at = serializers.DateTimeField(source="version.code_withdrawn_at", allow_null=True)
    withdrawn_reason = serializers.CharField(source="version.code_withdrawn_reason")
    effects = CodeEffectSerializer(many=True)


class CodeReason(serializers.Serializer[Any]):
    """Why a permission is withdrawn."""

    reason = serializers.CharField(max_length=services.MAX_REASON)


class CodeWithdrawnSerializer(serializers.Serializer[Any]):
    """How many versions lost their permission."""

    versions = serializers.IntegerField()


class VersionCode(VersionView):
    """The code of a version. ``effects`` is what withdrawing the permission would stop."""

    @extend_schema(summary="Read the code of a version", responses=VersionCodeSerializer)
    def get(self, request: Request, **_address: Any) -> Response:
        return Response(_document(self.version))


class VersionCodeWithdraw(VersionView):
    """The permission taken back."""

    @extend_schema(
        summary="Withdraw the permission for a version's code",
        description="Nodes unload what runs of it; it is deployed nowhere until an administrator permits it again.",
        request=CodeReason,
        responses=VersionCodeSerializer,
    )
    def post(self, request: Request, **_address: Any) -> Response:
        version = self.version
        services.code_withdraw(version=version, reason=self.read(CodeReason)["reason"], actor=self.actor)
        return Response(_document(version))


class VersionCodePermit(VersionView):
    """The permission given once more."""

    @extend_schema(
        summary="Permit a version's code again",
        description="Where the version is deployed nodes load it again.",
        request=None,
        responses=VersionCodeSerializer,
    )
    def post(self, request: Request, **_address: Any) -> Response:
        version = self.version
        services.code_permit_again(version=version, actor=self.actor)
        return Response(_document(version))


class CodePermissionList(ApiView):
    """Versions whose code nodes may run."""

    listing = Listing(("number",), order=("-code_permitted_at",), orderings=("code_permitted_at",))

    @extend_schema(summary="List versions whose code nodes may run", responses=paged(VersionSerializer))
    def get(self, request: Request, project: str) -> Response:
        rows = selectors.versions_permitted(self.project)
        return self.page(
            rows.select_related("author", "parent__model").prefetch_related(WITH_ALIASES), VersionSerializer
        )


class CodePermissionsWithdraw(ApiView):
    """All permissions of a project taken back."""

    write_scope = "admin"

    @extend_schema(
        summary="Withdraw the permissions for all code of a project",
        description="Nodes unload the code of every version of the project.",
        request=CodeReason,
        responses=CodeWithdrawnSerializer,
    )
    def post(self, request: Request, project: str) -> Response:
        reason = self.read(CodeReason)["reason"]
        count = services.code_withdraw_all(project=self.project, reason=reason, actor=self.actor)
        return Response({"versions": count})


def _document(version: ModelVersion) -> dict[str, Any]:
    effects = selectors.code_effects([version], timezone.now())
    return dict(VersionCodeSerializer({"version": version, "effects": effects}).data)
