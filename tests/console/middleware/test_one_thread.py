"""Requests in threads that are used again: nothing of one reaches the next, and a stream ends with its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import pytest
from django.core.signals import request_finished
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from console.middleware.one_thread import OneThreadHandler

_SEEN: ContextVar[str] = ContextVar("seen", default="nothing")
_SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "query_string": b"",
    "headers": [],
    "server": ("127.0.0.1", 80),
}


class _Client:
    def __init__(self) -> None:
        self.has_left = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent)


def _handler(answer: Callable[[HttpRequest], HttpResponseBase]) -> OneThreadHandler:
    handler = OneThreadHandler()
    handler.get_response = answer  # type: ignore[method-assign]
    return handler


def test_a_thread_is_used_again_and_keeps_nothing_of_the_request_before() -> None:
    threads: set[int] = set()

    def answer(request: HttpRequest) -> HttpResponse:
        threads.add(threading.get_ident())
        before = _SEEN.get()
        _SEEN.set("something")
        return HttpResponse(before)

    async def many_after_each_other() -> list[bytes]:
        handler, clients = _handler(answer), [_Client() for _turn in range(30)]
        for client in clients:
            await handler(dict(_SCOPE), client.receive, client.send)
        return [client.body for client in clients]

    assert set(asyncio.run(many_after_each_other())) == {b"nothing"}
    assert len(threads) < 10  # another one begins when the first has answered, but is not back yet


def test_an_answer_is_over_before_it_leaves() -> None:
    order: list[str] = []

    class Client(_Client):
        async def send(self, event: dict[str, Any]) -> None:
            order.append("sent")

    def finished(**_: Any) -> None:
        order.append("finished")

    async def one() -> None:
        client = Client()
        await _handler(lambda request: HttpResponse("x"))(dict(_SCOPE), client.receive, client.send)

    request_finished.connect(finished)
    try:
        asyncio.run(one())
    finally:
        request_finished.disconnect(finished)
    assert order == ["finished", "sent", "sent"]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_stream_ends_with_its_pieces_or_with_its_client(leaves: bool) -> None:
    closed: list[bool] = []

    async def run() -> _Client:
        client = _Client()

        async def pieces() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                if leaves:
                    client.has_left.set()
                    await asyncio.Event().wait()
                yield b"last"
            finally:
                closed.append(True)

        handler = _handler(lambda request: StreamingHttpResponse(pieces()))
        async with asyncio.timeout(60):
            await handler(dict(_SCOPE), client.receive, client.send)
        return client

    client = asyncio.run(run())
    assert client.body == (b"first" if leaves else b"firstlast")
    assert closed == [True]


def test_a_stream_that_breaks_is_not_taken_for_a_whole_one() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        raise OSError("the disk is gone")

    async def run() -> None:
        client = _Client()
        await _handler(lambda request: StreamingHttpResponse(pieces()))(dict(_SCOPE), client.receive, client.send)

    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(run())
