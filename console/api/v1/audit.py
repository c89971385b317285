"""The audit log: as pages, and whole as lines whose hash chain anybody can verify."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.pagination import Listing
from console.api.schema import paged
from console.api.v1.serializers.operations import AuditSerializer
from console.api.views import ApiView
from console.middleware.database import in_database_thread, release_connection
from registry.errors import ValidationFailed
from registry.models import AuditEvent
from registry.selectors import audit as selectors

_FILTERS = ("action", "object_type", "object_id", "actor_name", "project_id", "request_id")
_SEARCH = OpenApiParameter("q", description="Beginnings of words in who, what and which; or a client address.")
_LINES_AT_ONCE = 1000
# What the sealer has not reached when an export ends: seconds of work. More than this waits for the next export.
_UNSEALED_LIMIT = 10_000


class AuditList(ApiView):
    """Events of the caller's projects, newest first."""

    listing = Listing(_FILTERS, also=("q",))
    rate = "costly"

    @extend_schema(
        summary="List audit events",
        parameters=[_SEARCH],
        responses=paged(AuditSerializer),
    )
    def get(self, request: Request) -> Response:
        events = selectors.audit_search(selectors.audit_visible_to(self.actor), request.query_params.get("q", ""))
        return self.page(events, AuditSerializer)


class AuditExport(ApiView):
    """Events of the caller's projects as JSON lines, in the order in which they were sealed."""

    listing = Listing(_FILTERS, also=("q", "after_sequence"), is_paged=False)
    rate = "costly"

    @extend_schema(
        summary="Export audit events as JSON lines",
        description=(
            "One event a line with its place in the hash chain of its project: `chain`, `sequence`, `previous`, "
            "`hash`. `flotilla audit verify` proves a file of them. The newest events may not be sealed yet: their "
            "`sequence` is null. With `project_id`, `after_sequence` goes on where an earlier export ended."
        ),
        parameters=[
            _SEARCH,
            OpenApiParameter("after_sequence", OpenApiTypes.INT, description="Only later seals; needs `project_id`."),
        ],
        responses={(200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "One JSON object a line.")},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        events = self._chosen(request)
        release_connection()
        answer = StreamingHttpResponse(_lines(events), content_type="application/x-ndjson")
        answer.headers["Content-Disposition"] = 'attachment; filename="audit.jsonl"'
        return answer

    def _chosen(self, request: Request) -> QuerySet[AuditEvent]:
        given = request.query_params
        events = selectors.audit_search(selectors.audit_visible_to(self.actor), given.get("q", ""))
        events = self.narrowed(events)
        after = given.get("after_sequence", "")
        if not after:
            return events
        if not after.isdecimal() or len(after) > 18 or not given.get("project_id"):
            raise ValidationFailed(_("after_sequence is a whole number, and goes with project_id."))
        return events.filter(seal__sequence__gt=int(after))


async def _lines(events: QuerySet[AuditEvent]) -> AsyncIterator[bytes]:
    """Yield the lines in pieces; no connection is held between them, and each piece asks anew what may be seen."""
    after = 0
    while True:
        lines, after = await in_database_thread(selectors.audit_lines, events, after, _LINES_AT_ONCE)
        if not lines:
            break
        yield _encoded(lines)
    yield _encoded(await in_database_thread(lambda: [*selectors.unsealed_lines(events, _UNSEALED_LIMIT)]))


def _encoded(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)
