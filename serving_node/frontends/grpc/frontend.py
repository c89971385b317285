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
from serving_node.frontends.grpc.connection import GrpcConnection, GrpcLimits
from serving_node.frontends.grpc.infer import InferService
from serving_node.frontends.grpc.service import Services
from serving_node.frontends.shared_memory import SharedMemory
from serving_node.wire.listener import Listener


class GrpcFrontend:
    """Serves inference.GRPCInferenceService and grpc.health.v1.Health from a dataplane."""

    def __init__(
        self,
        dataplane: DataPlane,
        limits: GrpcLimits | None = None,
        pool: CodecPool | None = None,
        *,
        memory: SharedMemory | None = None,
    ) -> None:
        chosen = limits or GrpcLimits()
        used_pool = pool or CodecPool()
        self._own_pool = used_pool if pool is None else None
        services = Services(dataplane, InferService(dataplane, used_pool, memory=memory), memory)
        self._listener = Listener(
            lambda listener: GrpcConnection(services.methods, chosen, listener),
            max_connections=chosen.max_connections,
        )

    async def serve(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Listen. With TLS, the context must offer ``h2`` by ALPN.

        Raises:
            OSError: the address cannot be bound.
        """
        return await self._listener.start(host, port, tls=tls)

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, let running calls finish, close all connections."""
        await self._listener.stop(grace_seconds)
        if self._own_pool is not None:
            self._own_pool.close()
