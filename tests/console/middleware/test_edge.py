from __future__ import annotations

from typing import Any

import pytest

from console.middleware.edge import Edge


async def answer(scope: dict[str, Any], headers: list[tuple[bytes, bytes]]) -> tuple[int, dict[bytes, list[bytes]]]:
    """Return status and headers of an app that answers 200 with ``headers``."""
    sent: list[Any] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    await Edge(app)({"type": "http", "path": "/", "query_string": b"", **scope}, receive, send)
    found: dict[bytes, list[bytes]] = {}
    for name, value in sent[0]["headers"]:
        found.setdefault(name, []).append(value)
    return sent[0]["status"], found


async def test_an_answer_without_a_policy_gets_the_strictest() -> None:
    status, headers = await answer({}, [])
    assert status == 200
    assert headers[b"content-security-policy"] == [b"default-src 'none'; frame-ancestors 'none'"]
    assert headers[b"x-content-type-options"] == [b"nosniff"]
    assert headers[b"x-frame-options"] == [b"DENY"]


async def test_a_page_keeps_its_own_policy() -> None:
    _status, headers = await answer({}, [(b"Content-Security-Policy", b"script-src 'self'")])
    assert headers[b"Content-Security-Policy"] == [b"script-src 'self'"]
    assert b"content-security-policy" not in headers


@pytest.mark.parametrize(
    "scope", [{"path": "/p/a\0b/"}, {"query_string": b"q=%00"}, {"query_string": b"state=a%00b&x=1"}]
)
async def test_a_nul_in_the_address_is_refused_before_anything_reads_it(scope: dict[str, Any]) -> None:
    status, headers = await answer(scope, [])
    assert status == 400
    assert headers[b"content-type"] == [b"application/problem+json"]
    assert b"content-security-policy" in headers


async def test_other_scopes_pass_through() -> None:
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    await Edge(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == ["lifespan"]
