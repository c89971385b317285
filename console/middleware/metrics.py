"""Counts and times requests by route, for the console's own /metrics."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("flotilla_http_requests_total", "Answered requests.", ["method", "route", "status"])
DURATION = Histogram(
    "flotilla_http_request_duration_seconds",
    "Time to the start of the answer.",
    ["method", "route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
STREAMS = Gauge("flotilla_live_streams", "Open event streams of this process.")
UPLOADED = Counter("flotilla_upload_bytes_total", "Bytes written to the staging folder.")

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def observe(method: str, route: str, status: int, seconds: float) -> None:
    """Count one request. ``route`` is a pattern, never a raw path: labels must stay few."""
    method = method if method in _METHODS else "other"
    REQUESTS.labels(method, route, str(status)).inc()
    DURATION.labels(method, route).observe(seconds)


class MetricsMiddleware:
    """Observes every Django request under the pattern that matched (``unmatched`` when none did)."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._call_async(request)
        start = time.perf_counter()
        response = cast(HttpResponseBase, self.get_response(request))
        _finish(request, response, start)
        return response

    async def _call_async(self, request: HttpRequest) -> HttpResponseBase:
        start = time.perf_counter()
        response = cast(HttpResponseBase, await self.get_response(request))
        _finish(request, response, start)
        return response


def _finish(request: HttpRequest, response: HttpResponseBase, start: float) -> None:
    match = request.resolver_match
    route = match.route if match else "unmatched"
    observe(request.method or "", route, response.status_code, time.perf_counter() - start)
