"""Streams content from the artifact store with ranges. Source: RFC 9110 section 14."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

from django.http import HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request

from console.middleware.database import release_connection
from registry.models import Blob
from registry.storage import artifact_store

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class _TemporaryRedirect(HttpResponseRedirect):
    status_code = 307


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return (start, end past the last byte) of a single range, None when the whole content is meant.

    Several ranges and malformed headers mean the whole content, as the standard allows.

    Raises:
        ValueError: the range lies outside the content (416).
    """
    match = _RANGE.fullmatch((header or "").replace(" ", ""))
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        length = min(int(last), size)
        if length == 0:
            raise ValueError("an empty range")
        return size - length, size
    start = int(first)
    end = min(int(last) + 1, size) if last else size
    if last and int(last) < start:
        return None
    if start >= size:
        raise ValueError("past the end")
    return start, end


def blob_response(request: Request, blob: Blob, filename: str = "") -> HttpResponseBase:
    """Return 200, 206, 304, 307 or 416 for a blob that the caller may read. The database connection goes back first."""
    tag = f'"{blob.sha256}"'
    if request.headers.get("If-None-Match") == tag:
        return _dressed(HttpResponse(status=304), tag, filename)
    url = artifact_store().presign(blob.sha256)
    if url:
        return _TemporaryRedirect(url)
    is_same = request.headers.get("If-Range", tag) == tag
    try:
        wanted = read_range(request.headers.get("Range"), blob.size) if is_same else None
    except ValueError:
        refusal = HttpResponse(status=416)
        refusal.headers["Content-Range"] = f"bytes */{blob.size}"
        return _dressed(refusal, tag, filename)
    start, end = wanted or (0, blob.size)
    release_connection()
    if request.method == "HEAD" or start == end:
        response: HttpResponseBase = HttpResponse(status=206 if wanted else 200)
    else:
        chunks = _chunks(artifact_store().open_range(blob.sha256, start, end))
        response = StreamingHttpResponse(chunks, status=206 if wanted else 200)
    response.headers["Content-Length"] = str(end - start)
    if wanted:
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
    return _dressed(response, tag, filename)


def _dressed(response: HttpResponseBase, tag: str, filename: str) -> HttpResponseBase:
    response.headers["Content-Type"] = "application/octet-stream"
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    if filename:
        response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(filename, safe='')}"
    return response


async def _chunks(source: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read the next piece in a thread, so that a slow disk stops nobody else."""
    while True:
        chunk = await asyncio.to_thread(next, source, None)
        if chunk is None:
            return
        yield chunk
