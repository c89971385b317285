"""Serving configs of a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched
from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.catalog import (
    ConfigCheck,
    ConfigComment,
    ConfigCopyWrite,
    ConfigDetail,
    ConfigEffectSerializer,
    ConfigReportSerializer,
    ConfigSerializer,
    ConfigWrite,
    FieldChangeSerializer,
    TextDiffSerializer,
)
from console.api.views import ApiView
from registry.errors import ValidationFailed
from registry.models import ConfigRevision, RegisteredModel
from registry.selectors import configs as selectors
from registry.selectors import models
from registry.selectors.config_effects import config_effects
from registry.selectors.versions import version_by_number
from registry.services import configs as services
from registry.services.config_copies import config_copy, config_revert, config_text_diff


class ConfigList(ApiView):
    """Config revisions of a model."""

    listing = Listing(("digest", "number"), orderings=("number", "created_at"))

    @extend_schema(summary="List configs", responses=paged(ConfigSerializer))
    def get(self, request: Request, project: str, model: str) -> Response:
        return self.page(selectors.configs_of(self.model), ConfigSerializer)

    @extend_schema(
        summary="Store a config",
        description="The same content as the newest revision returns that revision. If-Match takes the ETag of "
        "revision 0, the newest: then nothing is stored when another was stored since.",
        request=ConfigWrite,
        responses={201: ConfigDetail},
    )
    def post(self, request: Request, project: str, model: str) -> Response:
        given = self.read(ConfigWrite)
        given.pop("version")
        if given["parent"] is not None:
            given["parent"] = selectors.config_by_number(self.model, given["parent"])
        with matched(request, self.model, _newest) as locked:
            revision = services.config_create(model=locked, **given, actor=self.actor)
        return Response(_detail(revision), status=201)


class ConfigValidate(ApiView):
    """Judge a config without storing it."""

    @extend_schema(summary="Check a config", request=ConfigCheck, responses=ConfigReportSerializer)
    def post(self, request: Request, project: str, model: str) -> Response:
        given = self.read(ConfigCheck)
        if given["version"] is not None:
            given["version"] = version_by_number(self.model, given["version"])
        report = services.config_check(model=self.model, **given)
        known = report.ok and report.body is not None
        effects = config_effects(self.model, report.body or {}, report.digest, timezone.now()) if known else ()
        affects = ConfigEffectSerializer(effects, many=True).data
        return Response({**dataclasses.asdict(report), "affects": affects})


class ConfigItem(ApiView):
    """One revision; number 0 is the newest."""

    @extend_schema(summary="Read a config", responses=ConfigDetail)
    def get(self, request: Request, project: str, model: str, number: int) -> Response:
        return Response(_detail(selectors.config_by_number(self.model, number)))


class ConfigDiff(ApiView):
    """What changed between two revisions."""

    queries = ("against", "as")

    @extend_schema(
        summary="Compare two configs",
        description="By field, or with `as=text` as a unified diff of config.pbtxt.",
        parameters=[
            OpenApiParameter("against", int, required=True),
            OpenApiParameter("as", str, enum=["fields", "text"]),
        ],
        responses=PolymorphicProxySerializer(
            component_name="ConfigDifference",
            serializers=[FieldChangeSerializer(many=True), TextDiffSerializer],
            resource_type_field_name=None,
            many=False,
        ),
    )
    def get(self, request: Request, project: str, model: str, number: int) -> Response:
        against, form = request.query_params.get("against", ""), request.query_params.get("as", "fields")
        if not (against.isascii() and against.isdigit()):
            raise ValidationFailed(_("Name the revision to compare with: ?against=<number>."))
        if form not in ("fields", "text"):
            raise ValidationFailed(_("A difference is shown as fields or as text."))
        before = selectors.config_by_number(self.model, int(against[:9]))
        after = selectors.config_by_number(self.model, number)
        if form == "text":
            return Response({"before": before.number, "after": after.number, "diff": config_text_diff(before, after)})
        return Response([dataclasses.asdict(change) for change in services.config_diff(before, after)])


class ConfigRevert(ApiView):
    """An earlier revision once more, as the newest."""

    @extend_schema(
        summary="Go back to a config",
        description="Stores the content of this revision as the next one, with a comment that names it. If-Match takes "
        "the ETag of revision 0, the newest.",
        request=ConfigComment,
        responses={201: ConfigDetail},
    )
    def post(self, request: Request, project: str, model: str, number: int) -> Response:
        given = self.read(ConfigComment)
        with matched(request, self.model, _newest) as locked:
            earlier = selectors.config_by_number(locked, number)
            revision = config_revert(model=locked, revision=earlier, **given, actor=self.actor)
        return Response(_detail(revision), status=201)


class ConfigCopy(ApiView):
    """A revision of another model, as the next of this one."""

    @extend_schema(
        summary="Copy a config of another model",
        description="Inputs, outputs and backend are those of this model's newest ready version, if there is one; the "
        "rest is copied. If-Match takes the ETag of revision 0, the newest.",
        request=ConfigCopyWrite,
        responses={201: ConfigDetail},
    )
    def post(self, request: Request, project: str, model: str) -> Response:
        given = self.read(ConfigCopyWrite)
        source = models.model_get(self.actor, given["project"] or project, given["model"])
        revision = selectors.config_by_number(source, given["number"])
        with matched(request, self.model, _newest) as locked:
            made = config_copy(source=revision, target=locked, comment=given["comment"], actor=self.actor)
        return Response(_detail(made), status=201)


def _newest(model: RegisteredModel) -> dict[str, Any] | None:
    revision = selectors.config_latest(model)
    return _detail(revision) if revision is not None else None


def _detail(revision: ConfigRevision) -> dict[str, Any]:
    return {**ConfigSerializer(revision).data, "pbtxt": services.config_pbtxt(revision.body)}
