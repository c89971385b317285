"""Django under ASGI, with middleware and view together in one thread.

Django's own handler stays asynchronous as long as a middleware can, and most of ours can only by a thread for each step
of theirs: about twenty hand-overs between threads for one request, which took longer than most of our views.
"""

from __future__ import annotations

import django
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponseBase


class OneThreadHandler(ASGIHandler):
    """Answers a request in the one thread that it has for everything that blocks."""

    def load_middleware(self, is_async: bool = False) -> None:
        """Build the chain for threads."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Return what the chain answers."""
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)


def django_application() -> OneThreadHandler:
    """Set Django up and return it as an ASGI app."""
    django.setup(set_prefix=False)
    return OneThreadHandler()
