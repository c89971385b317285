"""Django under ASGI, with everything that a request does together in one thread.

Django's own handler stays asynchronous as long as a middleware can, and most of ours can only by a thread for each step
of theirs: about twenty hand-overs between threads for one request, which took longer than most of our views. It also
starts a thread for each request, and with it what Django keeps for each thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.http import HttpResponseBase
from django.urls import set_script_prefix

# More at once wait for a thread; of those that have one, only as many as the pool of the database holds get far.
_MOST_AT_ONCE = 128
_THREADS = ThreadPoolExecutor(max_workers=_MOST_AT_ONCE, thread_name_prefix="request")


class OneThreadHandler(ASGIHandler):
    """Answers a request in one thread, which the next request takes over."""

    def load_middleware(self, is_async: bool = False) -> None:
        """Build the chain for threads."""
        super().load_middleware(is_async=False)

    async def handle(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve one request. Its connection to the database is back before the answer leaves."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with closing(body):
            loop = asyncio.get_running_loop()
            response = await loop.run_in_executor(_THREADS, copy_context().run, self._answer, scope, body)
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)

    def _answer(self, scope: MutableMapping[str, Any], body: Any) -> Any:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response: Any = refusal if request is None else self.get_response(request)
        response._handler_class = self.__class__
        if response.streaming:
            close_old_connections()  # in another thread the pieces are made, and with a connection of its own
        else:
            response.close()
        return response

    async def _stream(self, response: HttpResponseBase, receive: Any, send: Any) -> None:
        """Send the pieces until they or the client end."""
        sending = asyncio.ensure_future(self.send_response(response, send))
        leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            ended = await asyncio.gather(sending, leaving, return_exceptions=True)
            await sync_to_async(response.close)()
        if isinstance(ended[0], Exception):
            raise ended[0]


def django_application() -> OneThreadHandler:
    """Set Django up and return it as an ASGI app."""
    django.setup(set_prefix=False)
    return OneThreadHandler()
