"""The HTTP frontend: one listening address, the v2 protocol with its extensions.

Wiring: ``HttpFrontend(dataplane, limits, pool)``; ``await serve(host, port, tls=...)`` listens and returns the
``asyncio.Server`` (its sockets tell the port when 0 was asked for); ``await stop(grace_seconds)`` closes the listening
socket, lets running requests finish for that long and cuts the rest. ``pool`` may be shared with the gRPC frontend;
whoever made it closes it; without one the frontend has its own. Everything runs on the thread of the event loop that
``serve`` ran on.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field, replace

import orjson

from serving_node.core.errors import InferenceError
from serving_node.dataplane import DataPlane
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.http import openapi
from serving_node.frontends.http.answers import JSON_HEADERS, respond_error, respond_failure, respond_json
from serving_node.frontends.http.generate import GenerateHandler
from serving_node.frontends.http.infer import InferHandler
from serving_node.frontends.http.management import ManagementHandlers
from serving_node.frontends.http.routes import RouteTable
from serving_node.frontends.http.shared_memory import SharedMemoryHandlers
from serving_node.frontends.restricted_access import ApiCategory, RestrictedAccess
from serving_node.frontends.shared_memory import SharedMemory
from serving_node.wire.exchange import Headers, HttpExchange
from serving_node.wire.http1 import Http1Limits, Http1Server


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may do. ``max_input_bytes`` bounds the JSON part, the binary part and decompressed bodies each."""

    max_input_bytes: int = 64 * 1024 * 1024
    max_connections: int = 8192
    connection: Http1Limits = field(default_factory=Http1Limits)


class HttpFrontend:
    """Serves the v2 HTTP protocol from a dataplane."""

    def __init__(
        self,
        dataplane: DataPlane,
        limits: HttpLimits | None = None,
        pool: CodecPool | None = None,
        *,
        restricted: RestrictedAccess | None = None,
        forwarding: HeaderForwarding | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        chosen = limits or HttpLimits()
        used_pool = pool or CodecPool()
        self._own_pool = used_pool if pool is None else None
        self._restricted = restricted or None  # one without restrictions is false
        infer = InferHandler(dataplane, used_pool, chosen.max_input_bytes, forwarding or None, memory)
        self.routes = RouteTable()
        self.routes.add("/v2/models/{m}{v}/infer", ApiCategory.INFERENCE, POST=infer.serve)
        generate = GenerateHandler(dataplane, used_pool, chosen.max_input_bytes, forwarding or None)
        self.routes.add("/v2/models/{m}{v}/generate", ApiCategory.INFERENCE, POST=generate.serve)
        self.routes.add("/v2/models/{m}{v}/generate_stream", ApiCategory.INFERENCE, POST=generate.serve_stream)
        SharedMemoryHandlers(memory or SharedMemory.disabled()).add_routes(self.routes)
        ManagementHandlers(dataplane, used_pool).add_routes(self.routes)
        self.routes.add("/openapi.json", ApiCategory.METADATA, GET=self._openapi)
        self._server_metadata = dataplane.server_metadata
        self._tls = False
        connection = replace(
            chosen.connection,
            max_body_bytes=2 * chosen.max_input_bytes,
            refuse_oversize=lambda size, _: _refuse_oversize(size, chosen.max_input_bytes),
        )
        server = Http1Server(self.handle, connection, max_connections=chosen.max_connections)
        self._listener = server.listener

    async def serve(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, reuse_port: bool = False
    ) -> asyncio.Server:
        """Listen. With ``reuse_port`` other processes may listen on the same port.

        Raises:
            OSError: the address cannot be bound.
        """
        self._tls = tls is not None
        return await self._listener.start(host, port, tls=tls, reuse_port=reuse_port)

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let running requests finish, close all connections."""
        await self._listener.stop(grace_seconds)
        if self._own_pool is not None:
            self._own_pool.close()

    def handle(self, exchange: HttpExchange) -> None:
        """Answer one request, now or later."""
        match = self.routes.match(exchange.path)
        if match is None:
            respond_error(exchange, 404, "Not Found")
            return
        if self._restricted is not None and match.category is not None:
            refusal = self._restricted.check(match.category, exchange.headers)
            if refusal is not None:
                respond_error(exchange, 403, refusal)
                return
        handler = match.handlers.get(exchange.method)
        if handler is None:
            respond_error(exchange, 405, "Method Not Allowed", ((b"allow", ", ".join(match.handlers).encode()),))
            return
        try:
            handler(exchange, match.name, match.version)
        except InferenceError as error:
            respond_failure(exchange, error)

    def _openapi(self, exchange: HttpExchange, name: str, version: str) -> None:
        about = self._server_metadata()
        respond_json(
            exchange, openapi.build(self.routes, version=about.version, restricted=self._restricted, tls=self._tls)
        )


def _refuse_oversize(size: int, limit: int) -> tuple[int, Headers, bytes]:
    sentence = (
        f"request JSON size of {size} bytes exceeds the maximum allowed input size of {limit} bytes."
        " Use --http-max-input-size to increase the limit."
    )
    return 400, JSON_HEADERS, orjson.dumps({"error": sentence})
