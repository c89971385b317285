"""Optimistic locking over HTTP: weak ETags out, If-Match in. Source: RFC 9110 sections 8.8.3 and 13.1.1."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response

from registry.errors import StaleWrite


def etag_of(document: Any) -> str:
    """Return a weak ETag of a JSON document: equal documents have equal tags."""
    body = orjson.dumps(document, option=orjson.OPT_SORT_KEYS, default=str)
    return f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'


def matches(header: str, tag: str) -> bool:
    """Return whether an If-Match or If-None-Match header names the tag (weak comparison)."""
    wanted = tag.removeprefix("W/")
    return any(part.strip() == "*" or part.strip().removeprefix("W/") == wanted for part in header.split(","))


def require_match(request: Request, document: Any) -> None:
    """Refuse a write whose If-Match names another state than ``document``, what GET answers now.

    Raises:
        StaleWrite: somebody changed it since the caller read it. Without the header nothing is checked.
    """
    header = request.headers.get("If-Match")
    if header and not matches(header, etag_of(document)):
        raise StaleWrite(_("It was changed since you read it; read it again."))


def tagged(request: Request, document: Any) -> Response:
    """Return 200 with the document and its ETag, or 304 when the caller has it already."""
    tag = etag_of(document)
    header = request.headers.get("If-None-Match")
    if header and matches(header, tag):
        return Response(status=304, headers={"ETag": tag})
    return Response(document, headers={"ETag": tag})
