"""Static files of the console."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from servestatic.middleware import ServeStaticMiddleware


class StaticFilesMiddleware:
    """Serves static files, and hands everything else on without leaving the thread."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        self._files = ServeStaticMiddleware(_nothing)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the file of the address, else what is behind."""
        found = None
        if request.path_info.startswith(settings.STATIC_URL):
            found = async_to_sync(self._files)(request)
        response: HttpResponseBase = self.get_response(request) if found is None else found
        return response


async def _nothing(request: HttpRequest) -> None:
    """Say that there is no such file."""
