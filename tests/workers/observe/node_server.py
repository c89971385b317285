"""A node's admin and metrics ports over real HTTP, with a FakeNode behind them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from workers.node_client.client import NodeAddress
from workers.node_client.fake import FakeNode

SECRET = "admin-secret-of-tests"


@dataclass
class NodeServer:
    """Serves ``fake``; ``url`` is known after ``start``. ``polls`` and ``scrapes`` count what was asked."""

    fake: FakeNode
    polls: int = 0
    scrapes: int = 0
    unauthorized: int = 0
    url: str = ""
    port: int = 0
    _server: asyncio.Server | None = None
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode(), writer)
        self._connections.discard(writer)
        writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        target = urlsplit(head.split(" ")[1])
        routes: dict[str, Callable[[str, str], Awaitable[tuple[int, str, bytes]]]] = {
            "/v1/observed": self._observed,
            "/metrics": self._metrics,
        }
        status, content_type, body = await routes[target.path](head, target.query)
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()

    async def _observed(self, head: str, query: str) -> tuple[int, str, bytes]:
        self.polls += 1
        if f"authorization: bearer {SECRET}" not in head.lower():
            self.unauthorized += 1
            return 401, "application/json", b'{"error": "no"}'
        asked = parse_qs(query)
        client = self.fake.connect(NodeAddress("", "", "", ""))
        after = int(asked["after"][0]) if "after" in asked else None
        observed = await client.observed(after=after, timeout_seconds=float(asked.get("timeout", ["0"])[0]))
        return 200, "application/json", json.dumps(observed.to_json()).encode()

    async def _metrics(self, head: str, query: str) -> tuple[int, str, bytes]:
        self.scrapes += 1
        return 200, self.fake.exposition.content_type, self.fake.exposition.body
