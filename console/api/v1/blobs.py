"""Content by digest, for nodes (what they should load) and readers of a version that holds it."""

from __future__ import annotations

from django.http import Http404
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from console.api.blob_response import blob_response
from console.api.views import AlwaysJson
from console.identity.actors import actor_of
from console.identity.tokens import NodePrincipal
from registry.selectors import blobs


class BlobItem(APIView):
    """One blob. Who may not read it learns no more than that there is none."""

    content_negotiation_class = AlwaysJson

    @extend_schema(
        summary="Read content",
        description="Ranges are supported; 307 to the object store when that can serve it directly.",
        parameters=[OpenApiParameter("Range", location="header")],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, sha256: str) -> HttpResponseBase:
        if isinstance(request.user, NodePrincipal):
            is_allowed = blobs.node_may_read(request.user.node, sha256)
        else:
            actor = actor_of(request)
            is_allowed = actor.has_scope("read") and blobs.actor_may_read(actor, sha256)
        if not is_allowed:
            raise Http404
        return blob_response(request, blobs.blob_get(sha256))
