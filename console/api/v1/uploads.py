"""Files on their way into a version: all of them, and those that go to the object store in parts."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.catalog import (
    PartAddressesSerializer,
    PartsSerializer,
    PartsWrite,
    UploadComplete,
    UploadSerializer,
    UploadWrite,
)
from console.api.v1.versions import VersionView
from registry.domain.parts import part_count
from registry.models import Upload
from registry.selectors.versions import upload_in_parts
from registry.services import direct_uploads as services
from registry.services.permissions import require


class VersionUploads(VersionView):
    """Files on their way into a version."""

    listing = Listing(("state", "path"))

    @extend_schema(
        summary="List uploads",
        description="The bytes of one go to `/api/v1/uploads/{id}` by the tus protocol, or with `part_bytes` to the "
        "object store, in parts; whoever began it may go on.",
        responses=paged(UploadSerializer),
    )
    def get(self, request: Request, **_address: Any) -> Response:
        return self.page(self.version.uploads.all(), UploadSerializer)

    @extend_schema(
        summary="Begin an upload in parts",
        description="Where the installation keeps content in an object store that signs addresses; elsewhere 409, and "
        "the tus protocol does it.",
        request=UploadWrite,
        responses={201: UploadSerializer},
    )
    def post(self, request: Request, **_address: Any) -> Response:
        upload = services.direct_upload_create(version=self.version, **self.read(UploadWrite), actor=self.actor)
        return Response(UploadSerializer(upload).data, status=201)


class UploadView(VersionView):
    """Base of what is below one upload in parts."""

    @property
    def upload(self) -> Upload:
        """Return the caller's own upload of the address."""
        version, wanted = self.version, self.kwargs["upload"]
        require(self.actor, "version.write", version)
        return upload_in_parts(self.actor, version, wanted)


class UploadParts(UploadView):
    """Parts of an upload."""

    # Whoever has one of the addresses may write there for a while.
    keeps_answers = False

    @extend_schema(summary="Tell which parts are there", responses=PartsSerializer)
    def get(self, request: Request, **_address: Any) -> Response:
        upload = self.upload
        present = sorted(services.parts_present(upload=upload))
        count = part_count(upload.length, upload.part_bytes)
        document = {"part_bytes": upload.part_bytes, "count": count, "present": present}
        return Response(PartsSerializer(document).data)

    @extend_schema(
        summary="Sign addresses for parts",
        description="Each part is sent with PUT to its address, which holds for 15 minutes; again as often as needed.",
        request=PartsWrite,
        responses=PartAddressesSerializer,
    )
    def post(self, request: Request, **_address: Any) -> Response:
        signed = services.parts_sign(upload=self.upload, **self.read(PartsWrite))
        return Response(PartAddressesSerializer({"parts": signed}).data)


class UploadCompletion(UploadView):
    """The end of an upload in parts."""

    @extend_schema(
        summary="Complete an upload in parts",
        description="All parts are there. A worker reads them and refuses what has another digest.",
        request=UploadComplete,
        responses=UploadSerializer,
    )
    def post(self, request: Request, **_address: Any) -> Response:
        upload = services.direct_upload_complete(upload=self.upload, **self.read(UploadComplete))
        return Response(UploadSerializer(upload).data)
