"""Answers Prometheus. Rendering happens off the loop: it is proportional to the number of models.

Source: Triton's metrics port, whose answers to other paths and methods are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from serving_node.dataplane import DataPlane
from serving_node.observability.families import (
    PROTOBUF_CONTENT_TYPE,
    TEXT_CONTENT_TYPE,
    Family,
    to_protobuf,
    to_text,
)
from serving_node.observability.host import HostProbe
from serving_node.observability.metrics import ModelSeries, model_families
from serving_node.observability.metrics_config import MetricsConfig
from serving_node.wire.http1 import Http1Limits, Http1Server, HttpExchange
from serving_node.wire.listener import Listener

log = structlog.get_logger(__name__)

_LIMITS = Http1Limits(max_body_bytes=64 * 1024)
_RENDER_SECONDS = 30.0


class MetricsFrontend:
    """Serves ``GET /metrics`` in the text format, or as protobuf when the scraper accepts that.

    ``cache_families`` returns the metrics of the response cache, if there is one, and ``own_families``, on any thread,
    those that models made for themselves. ``listener`` starts and stops it.
    ``close`` after the listener has stopped.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        host: HostProbe | None = None,
        config: MetricsConfig | None = None,
        *,
        cache_families: Callable[[], list[Family]] = list,
        own_families: Callable[[], list[Family]] = list,
    ) -> None:
        self._dataplane = dataplane
        self._cache_families = cache_families
        self._own_families = own_families
        self._config = config or MetricsConfig()
        self._host = host or HostProbe()
        # one thread: scrapers that come together wait for each other instead of taking cores from the models
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._tasks: set[asyncio.Task[None]] = set()
        self.listener: Listener = Http1Server(self.handle, _LIMITS, max_connections=256).listener

    def handle(self, exchange: HttpExchange) -> None:
        """Answer one scrape, later. Called by the connection."""
        if exchange.method != "GET":
            exchange.respond(405, [(b"content-type", b"text/plain")], [b'{"error":"Method Not Allowed"}'])
            return
        if exchange.path.rstrip(b"/") != b"/metrics":
            exchange.respond(200, [(b"content-type", b"text/plain; charset=utf-8")])
            return
        task = asyncio.ensure_future(self._answer(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Free the rendering thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, exchange: HttpExchange) -> None:
        wants_protobuf = accepts_protobuf(exchange.headers.get(b"accept", b""))
        series = self._dataplane.model_series()
        cache = self._cache_families()
        loop = asyncio.get_running_loop()
        try:
            rendering = loop.run_in_executor(self._executor, self._render, series, cache, wants_protobuf)
            body = await asyncio.wait_for(rendering, _RENDER_SECONDS)
        except Exception:
            log.exception("metrics.render_failed")
            exchange.respond(500, [(b"content-type", b"text/plain")], [b"cannot render the metrics\n"])
            return
        content_type = PROTOBUF_CONTENT_TYPE if wants_protobuf else TEXT_CONTENT_TYPE
        if not exchange.disconnected:
            exchange.respond(200, [(b"content-type", content_type)], [body])

    def _render(self, series: list[ModelSeries], cache: list[Family], wants_protobuf: bool) -> bytes:
        families = model_families(series, self._config, self._host.gpu_uuid)
        families += [*cache, *self._host.families(), *self._own_families()]
        return to_protobuf(families) if wants_protobuf else to_text(families)


def accepts_protobuf(accept: bytes) -> bool:
    """Return whether the Accept header asks for MetricFamily messages at least as much as for text."""
    best: dict[bool, float] = {}
    for item in accept.lower().split(b","):
        media, *parameters = [part.strip() for part in item.split(b";")]
        is_protobuf = media == b"application/vnd.google.protobuf"
        if is_protobuf and not {b"proto=io.prometheus.client.metricfamily", b"encoding=delimited"} <= set(parameters):
            continue
        quality = next((_quality(part[2:]) for part in parameters if part.startswith(b"q=")), 1.0)
        best[is_protobuf] = max(quality, best.get(is_protobuf, 0.0))
    return best.get(True, 0.0) > 0 and best[True] >= best.get(False, 0.0)


def _quality(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
