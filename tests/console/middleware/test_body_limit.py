from __future__ import annotations

import asyncio
from typing import Any

import pytest

from console.middleware.body_limit import BodyLimit


async def call(pieces: list[bytes], headers: list[tuple[bytes, bytes]]) -> tuple[bytes | None, list[Any]]:
    """Return the body as the app got it (None when it was cut off) and what was sent."""
    seen: list[bytes | None] = []
    sent: list[Any] = []
    events = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    events.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return events.pop(0)

    async def send(event: Any) -> None:
        sent.append(event)

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                seen.append(None)
                return
            body += event["body"]
            if not event["more_body"]:
                seen.append(body)
                await send({"type": "http.response.start", "status": 200})
                return

    await BodyLimit(app, most_bytes=10)({"type": "http", "headers": headers}, receive, send)
    return (seen[0] if seen else None), sent


async def test_body_up_to_the_limit_passes() -> None:
    body, sent = await call([b"12345", b"67890"], [])
    assert (body, sent[0]["status"]) == (b"1234567890", 200)


@pytest.mark.parametrize(
    ("pieces", "headers"),
    [([b"12345", b"678901"], []), ([], [(b"content-length", b"11")]), ([], [(b"content-length", b"-1")])],
)
async def test_larger_body_is_413(pieces: list[bytes], headers: list[tuple[bytes, bytes]]) -> None:
    body, sent = await call(pieces, headers)
    assert (body, sent[0]["status"]) == (None, 413)


async def test_body_without_a_length_is_refused_rather_than_lost() -> None:
    body, sent = await call([b"{}"], [(b"transfer-encoding", b"chunked")])
    assert (body, sent[0]["status"]) == (None, 411)


async def test_a_body_that_drips_in_is_given_up() -> None:
    sent: list[Any] = []
    seen: list[str] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(event: Any) -> None:
        sent.append(event)

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        seen.append((await receive())["type"])

    await BodyLimit(app, most_seconds=0)({"type": "http", "headers": []}, receive, send)
    assert seen == ["http.disconnect"]
    assert sent[0]["status"] == 408


async def test_waiting_for_the_client_to_leave_has_no_deadline() -> None:
    events = [{"type": "http.request", "body": b"x", "more_body": False}, {"type": "http.disconnect"}]
    seen: list[str] = []

    async def receive() -> Any:
        return events.pop(0)

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        seen.append((await receive())["type"])
        await asyncio.sleep(0)
        seen.append((await receive())["type"])

    async def send(event: Any) -> None:
        raise AssertionError(event)

    await BodyLimit(app)({"type": "http", "headers": []}, receive, send)
    assert seen == ["http.request", "http.disconnect"]
