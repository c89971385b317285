"""The gRPC frontend: one listening address, all services.

Wiring: ``GrpcFrontend(dataplane, limits, pool)``; ``await serve(host, port, tls=...)`` listens and returns the
``asyncio.Server`` (its sockets tell the port when 0 was asked for); ``await stop(grace_seconds)`` refuses new calls,
lets running ones finish for that long and cuts the rest. ``pool`` may be shared with the HTTP frontend; whoever made
it closes it; without one the frontend has its own. Everything runs on the thread of the event loop that ``serve``
ran on.
"""

from __future__ import annotations

import asyncio
import ssl

from serving_node.dataplane import DataPlane
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.compression_level import CompressionLevel
from serving_node.frontends.grpc.compression import AnswerCompression
from serving_node.frontends.grpc.connection import GrpcConnection, GrpcLimits
from serving_node.frontends.grpc.infer import InferService
from serving_node.frontends.grpc.routing import Routes
from serving_node.frontends.grpc.service import Services
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.restricted_access import RestrictedAccess
from serving_node.frontends.shared_memory import SharedMemory
from serving_node.wire.listener import Listener


class GrpcFrontend:
    """Serves inference.GRPCInferenceService, grpc.health.v1.Health and reflection from a dataplane."""

    def __init__(
        self,
        dataplane: DataPlane,
        limits: GrpcLimits | None = None,
        pool: CodecPool | None = None,
        *,
        memory: SharedMemory | None = None,
        restricted: RestrictedAccess | None = None,
        forwarding: HeaderForwarding | None = None,
        compression: CompressionLevel = CompressionLevel.NONE,
    ) -> None:
        chosen = limits or GrpcLimits()
        used_pool = pool or CodecPool()
        self._own_pool = used_pool if pool is None else None
        self._infer = InferService(
            dataplane,
            used_pool,
            forwarding=forwarding,
            compression=None if compression is CompressionLevel.NONE else AnswerCompression(compression),
            memory=memory,
        )
        services = Services(dataplane, self._infer, memory)
        routes = Routes(services.methods, chosen.http2.max_header_list_bytes, restricted)
        self._listener = Listener(
            lambda listener: GrpcConnection(routes, chosen, listener),
            max_connections=chosen.max_connections,
        )

    async def serve(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None, reuse_port: bool = False
    ) -> asyncio.Server:
        """Listen. With TLS, the context must offer ``h2`` by ALPN.

        Raises:
            OSError: the address cannot be bound.
        """
        return await self._listener.start(host, port, tls=tls, reuse_port=reuse_port)

    def retire(self) -> None:
        """Refuse new requests and send clients elsewhere; running calls go on."""
        self._infer.stopping = True
        self._listener.retire()

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let running calls finish, close all connections."""
        self._infer.stopping = True
        await self._listener.stop(grace_seconds)
        if self._own_pool is not None:
            self._own_pool.close()
