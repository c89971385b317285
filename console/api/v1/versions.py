"""Versions of a model: a number, an alias, or the id while it has no number yet."""

from __future__ import annotations

from typing import Any

from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.blob_response import blob_response
from console.api.etag import matched, tagged
from console.api.pagination import Listing, refusal
from console.api.schema import paged
from console.api.v1.serializers.catalog import (
    CheckSerializer,
    ComparisonSerializer,
    ConversionWrite,
    FetchWrite,
    FileSerializer,
    FileWrite,
    LineageSerializer,
    PreviewSerializer,
    RankingSerializer,
    ReasonWrite,
    SizesSerializer,
    VersionChange,
    VersionSerializer,
    VersionWrite,
)
from console.api.v1.serializers.operations import OperationSerializer
from console.api.views import ApiView, accepted
from registry.models import ModelVersion
from registry.selectors import blobs
from registry.selectors import version_facts as facts
from registry.selectors import versions as selectors
from registry.selectors.aliases import version_named, version_seen
from registry.selectors.models import model_get
from registry.services import checks, conversions
from registry.services import versions as services
from registry.services.fetching import version_fetch
from registry.services.permissions import require
from registry.services.previews import file_preview


class VersionList(ApiView):
    """Versions of a model."""

    listing = Listing(("state", "number", "format"))

    @extend_schema(
        summary="List versions",
        responses=paged(VersionSerializer),
    )
    def get(self, request: Request, project: str, model: str) -> Response:
        return self.page(selectors.versions_of(self.model), VersionSerializer, selectors.versions_named)

    @extend_schema(summary="Begin a version", request=VersionWrite, responses={201: VersionSerializer})
    def post(self, request: Request, project: str, model: str) -> Response:
        given = self.read(VersionWrite)
        if given["parent"] is not None:
            given["parent"] = self._parent(given["parent"])
        version = services.version_create(model=self.model, **given, actor=self.actor)
        return Response(VersionSerializer(version).data, status=201)

    def _parent(self, named: dict[str, Any]) -> ModelVersion:
        model = model_get(self.actor, self.project.slug, named["model"]) if "model" in named else self.model
        return version_named(model, named["version"])


class VersionRanking(ApiView):
    """Versions by one of their metrics."""

    queries = ("metric", "order")

    @extend_schema(
        summary="Rank versions by a metric",
        parameters=[
            OpenApiParameter("metric", required=True),
            OpenApiParameter("order", enum=["highest", "lowest"], description="What comes first; highest by default."),
        ],
        responses=RankingSerializer,
    )
    def get(self, request: Request, project: str, model: str) -> Response:
        metric, order = request.query_params.get("metric", ""), request.query_params.get("order", "highest")
        if not metric or len(metric) > 64:
            raise refusal("metric", _("Name a metric."))
        if order not in ("highest", "lowest"):
            raise refusal("order", _("The order is highest or lowest."))
        rows = list(facts.versions_ranked(self.model, metric, is_lowest=order == "lowest"))
        return Response(RankingSerializer({"metric": metric, "results": rows}).data)


class VersionView(ApiView):
    """Base of what is below one version."""

    @property
    def version(self) -> ModelVersion:
        """Return the version of the address, by number, id or alias."""
        if self.request.method == "GET":
            address = self.kwargs
            return version_seen(self.actor, address["project"], address["model"], address["version"])
        return version_named(self.model, self.kwargs["version"])


class VersionItem(VersionView):
    """One version."""

    @extend_schema(summary="Read a version", responses=VersionSerializer)
    def get(self, request: Request, **_address: Any) -> Response:
        return tagged(request, _document(self.version))

    @extend_schema(
        summary="Change metadata or metrics",
        description="Also of a ready version; everything else about it is immutable.",
        request=VersionChange,
        responses=VersionSerializer,
    )
    def patch(self, request: Request, **_address: Any) -> Response:
        with matched(request, self.version, _document) as version:
            changed = services.version_annotate(version=version, **self.read(VersionChange), actor=self.actor)
        return tagged(request, _document(changed))


class VersionLineage(VersionView):
    """What a version was made from, and what was made from it."""

    @extend_schema(summary="Read a version's lineage", responses=LineageSerializer)
    def get(self, request: Request, **_address: Any) -> Response:
        return Response(LineageSerializer(facts.lineage_of(self.version)).data)


class VersionCompare(VersionView):
    """What differs between two versions of a model."""

    queries = ("against",)

    @extend_schema(
        summary="Compare two versions",
        parameters=[OpenApiParameter("against", required=True, description="The other one: number, id or alias.")],
        responses=ComparisonSerializer,
    )
    def get(self, request: Request, **_address: Any) -> Response:
        against = request.query_params.get("against", "")
        if not against or len(against) > 36:
            raise refusal("against", _("Name the other version by number, id or alias."))
        found = facts.compare(version_named(self.model, against), self.version)
        return Response(ComparisonSerializer(found).data)


class VersionPreview(VersionView):
    """The beginning of a file, as text."""

    queries = ("path",)

    @extend_schema(
        summary="Preview a text file",
        parameters=[OpenApiParameter("path", required=True)],
        responses=PreviewSerializer,
    )
    def get(self, request: Request, **_address: Any) -> Response:
        file = selectors.file_of(self.version, request.query_params.get("path", ""))
        shown = file_preview(file)
        document = {"path": file.path, "size": file.blob.size, "is_text": shown.is_text, "text": shown.text}
        return Response({**document, "is_cut": shown.is_cut})


class VersionSubmit(VersionView):
    """Start the checks."""

    checks_match = True

    @extend_schema(summary="Submit a version for checks", request=None, responses={202: OperationSerializer})
    def post(self, request: Request, **_address: Any) -> Response:
        with matched(request, self.version, _document) as version:
            operation = services.version_submit(version=version, actor=self.actor)
        return accepted(operation.pk, OperationSerializer(operation).data)


class VersionFetch(VersionView):
    """Files from an address."""

    @extend_schema(
        summary="Fetch files from an address, and submit the version",
        description="Only from addresses that the operator of the server allows (`FLOTILLA_IMPORT_SOURCES`).",
        request=FetchWrite,
        responses={202: OperationSerializer},
    )
    def post(self, request: Request, **_address: Any) -> Response:
        operation = version_fetch(version=self.version, **self.read(FetchWrite), actor=self.actor)
        return accepted(operation.pk, OperationSerializer(operation).data)


class VersionFiles(VersionView):
    """Files of a version."""

    listing = Listing(("path",), orderings=("path", "created_at"))

    @extend_schema(summary="List files", responses=paged(FileSerializer))
    def get(self, request: Request, **_address: Any) -> Response:
        return self.page(self.version.files.select_related("blob"), FileSerializer)

    @extend_schema(summary="Add a file that is stored already", request=FileWrite, responses={201: FileSerializer})
    def post(self, request: Request, **_address: Any) -> Response:
        file = services.version_attach_blob(version=self.version, **self.read(FileWrite), actor=self.actor)
        return Response(FileSerializer(file).data, status=201)


class VersionFilesKnown(VersionView):
    """Which files of a version the server may have already."""

    @extend_schema(
        summary="Tell which sizes are known",
        description="Answers with those sizes at which the caller can read some content already. Only a file of such a "
        "size is worth hashing before it is sent: its digest may then be added without its bytes.",
        request=SizesSerializer,
        responses=SizesSerializer,
    )
    def post(self, request: Request, **_address: Any) -> Response:
        require(self.actor, "version.write", self.version)
        return Response({"sizes": blobs.known_sizes(self.actor, self.read(SizesSerializer)["sizes"])})


class VersionChecks(VersionView):
    """Verdicts about a version."""

    listing = Listing(("kind", "verdict"))

    @extend_schema(summary="List checks", responses=paged(CheckSerializer))
    def get(self, request: Request, **_address: Any) -> Response:
        return self.page(self.version.checks.all(), CheckSerializer)


class VersionCheckRerun(VersionView):
    """One check, made again."""

    @extend_schema(summary="Make a check again", request=None, responses={202: OperationSerializer})
    def post(self, request: Request, kind: str, **_address: Any) -> Response:
        operation = checks.check_rerun(version=self.version, kind=kind, actor=self.actor)
        return accepted(operation.pk, OperationSerializer(operation).data)


class VersionConversion(VersionView):
    """The report of the conversion that made the file of a version."""

    @extend_schema(
        summary="Attach the report of a conversion", request=ConversionWrite, responses={201: CheckSerializer}
    )
    def post(self, request: Request, **_address: Any) -> Response:
        report = self.read(ConversionWrite)["report"]
        check = conversions.conversion_attach(version=self.version, report=report, actor=self.actor)
        return Response(CheckSerializer(check).data, status=201)


class VersionDownload(VersionView):
    """The bytes of one file."""

    queries = ("path",)

    @extend_schema(
        summary="Download a file",
        parameters=[OpenApiParameter("path", required=True), OpenApiParameter("Range", location="header")],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, **_address: Any) -> HttpResponseBase:
        file = selectors.file_of(self.version, request.query_params.get("path", ""))
        return blob_response(request, file.blob, filename=file.path.rpartition("/")[2])


class VersionMove(VersionView):
    """Archive, restore, quarantine or abandon a version (``verb`` from the address)."""

    checks_match = True
    verb = ""

    @extend_schema(summary="Move a version to another state", request=ReasonWrite, responses=VersionSerializer)
    def post(self, request: Request, **_address: Any) -> Response:
        reason = self.read(ReasonWrite)["reason"]
        with matched(request, self.version, _document) as version:
            if self.verb == "archive":
                services.version_archive(version=version, actor=self.actor)
            elif self.verb == "restore":
                services.version_restore(version=version, actor=self.actor)
            elif self.verb == "quarantine":
                services.version_quarantine(version=version, reason=reason, actor=self.actor)
            else:
                services.version_abandon(version=version, reason=reason, actor=self.actor)
        version.refresh_from_db()
        return tagged(request, _document(version))


def _document(version: ModelVersion) -> dict[str, Any]:
    return dict(VersionSerializer(version).data)
