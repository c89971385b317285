"""Health gates: is this child ready to be used?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

HealthGate = Callable[[], Awaitable[bool]]

_PROBE_SECONDS = 3.0


async def answers_ping(port: int, password: str) -> bool:
    """True when a Valkey or Redis answers PONG after authentication."""
    reply = await _exchange(port, f"AUTH {password}\r\nPING\r\n".encode(), len(b"+OK\r\n+PONG\r\n"))
    return reply is not None and reply.endswith(b"+PONG\r\n")


async def accepts_postgres_start(port: int) -> bool:
    """True when PostgreSQL takes logins: it asks for authentication ('R') instead of refusing ('E')."""
    body = (196608).to_bytes(4, "big") + b"user\x00flotilla\x00database\x00postgres\x00\x00"
    reply = await _exchange(port, (len(body) + 4).to_bytes(4, "big") + body, 1)
    return reply == b"R"


async def answers_http(port: int, path: str) -> bool:
    """True when GET ``path`` gives 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
    reply = await _exchange(port, request, 12)
    return reply is not None and reply[9:12] == b"200"


async def _exchange(port: int, request: bytes, reply_bytes: int) -> bytes | None:
    """Send ``request`` and return the first ``reply_bytes`` of the answer, or None when that fails in time."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await writer.drain()
            return await reader.readexactly(reply_bytes)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()


async def always() -> bool:
    """For children that serve nobody: being alive is enough."""
    return True
