"""A listening socket with its connections: deadlines, the receive buffer they share, and an orderly stop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from serving_node.wire.memory import keep_large_buffers

# One read is at most this many bytes; larger messages are received into a buffer of their own.
RECEIVE_BYTES = 256 * 1024
_TICK_SECONDS = 1.0
# Until the handshake is done nobody counts the connection.
_HANDSHAKE_SECONDS = 10.0


class Connection(Protocol):
    """What a listener needs from a connection of any protocol."""

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its peer was too slow or idle. ``now`` is the loop's time in seconds."""

    def shut_down(self) -> None:
        """Finish what is running, take nothing new, then close."""

    def abort(self) -> None:
        """Close at once."""


class Listener:
    """Accepts connections of one protocol on one address.

    ``receive_buffer`` is scratch memory for all connections: with a plain or TLS stream transport the event loop
    asks for the buffer, reads, and reports the read in one step, so no two connections ever hold it together.
    Connections call ``add`` when made and ``discard`` when lost.

    Concurrency: everything runs on the thread of the event loop that ``start`` ran on.
    """

    def __init__(self, factory: Callable[[Listener], asyncio.BaseProtocol], *, max_connections: int = 8192) -> None:
        self.receive_buffer = bytearray(RECEIVE_BYTES)
        self.receive_view = memoryview(self.receive_buffer)
        self.stopping = False
        self._factory = factory
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event = asyncio.Event()

    async def start(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, reuse_port: bool = False
    ) -> asyncio.Server:
        """Listen. The port in use (for port 0) is in the returned server's sockets.

        Raises:
            OSError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        keep_large_buffers()
        self._server = await loop.create_server(
            self._make,
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
            backlog=1024,
            reuse_port=reuse_port or None,
        )
        self._timer = loop.call_later(_TICK_SECONDS, self._tick, loop)
        return self._server

    def retire(self) -> None:
        """Let running exchanges finish and take no new ones on the connections that are open."""
        for connection in tuple(self._connections):
            connection.shut_down()

    async def stop(self, grace_seconds: float) -> None:
        """Close the listening socket, let running exchanges finish for at most ``grace_seconds``, then cut the rest."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
            self._server = None
        self.retire()
        if self._connections:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), grace_seconds)
            except TimeoutError:
                for connection in tuple(self._connections):
                    connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, connection: Connection) -> bool:
        """Register a new connection. False means that there are too many: the caller must abort it."""
        if self.stopping or len(self._connections) >= self._max_connections:
            return False
        self._connections.add(connection)
        return True

    def discard(self, connection: Connection) -> None:
        """Forget a lost connection."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def __len__(self) -> int:
        return len(self._connections)

    def _make(self) -> asyncio.BaseProtocol:
        return self._factory(self)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in tuple(self._connections):
            connection.check_deadlines(now)
        self._timer = loop.call_later(_TICK_SECONDS, self._tick, loop)
