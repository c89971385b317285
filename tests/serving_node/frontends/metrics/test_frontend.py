from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from serving_node.frontends.metrics.frontend import MetricsFrontend, accepts_protobuf
from serving_node.observability.families import PROTOBUF_CONTENT_TYPE, TEXT_CONTENT_TYPE
from serving_node.observability.host import HostProbe
from serving_node.observability.metrics import ModelSeries
from serving_node.observability.statistics import ModelStatistics


class OneModel:
    """The part of the dataplane that the metrics port uses."""

    def model_series(self) -> list[ModelSeries]:
        return [ModelSeries("m", "1", ModelStatistics(), 0, 0.1)]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    frontend = MetricsFrontend(OneModel(), HostProbe(gpu=False))  # type: ignore[arg-type]
    server = await frontend.listener.start("127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    await frontend.listener.stop(1.0)
    frontend.close()


async def get(port: int, path: str = "/metrics", accept: bytes = b"*/*", method: bytes = b"GET") -> tuple[bytes, bytes]:
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"%s %s HTTP/1.1\r\nhost: x\r\naccept: %s\r\nconnection: close\r\n\r\n" % (method, path.encode(), accept)
        )
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return head.lower(), body


async def test_scrape_gets_text(port: int) -> None:
    head, body = await get(port)
    assert head.startswith(b"http/1.1 200")
    assert TEXT_CONTENT_TYPE in head
    assert b'nv_inference_count{model="m",version="1"} 0\n' in body
    assert b"\nnv_cpu_memory_total_bytes " in body
    assert body.endswith(b"\n")


async def test_scrape_that_accepts_protobuf_gets_it(port: int) -> None:
    accept = PROTOBUF_CONTENT_TYPE + b";q=0.7,text/plain;version=0.0.4;q=0.3"
    head, body = await get(port, accept=accept)
    assert b"encoding=delimited" in head
    assert b"flotilla_request_duration_seconds" in body


async def test_other_paths_and_methods_answer_as_triton(port: int) -> None:
    head, body = await get(port, "/other")
    assert head.startswith(b"http/1.1 200")
    assert body == b""
    head, _ = await get(port, method=b"POST")
    assert head.startswith(b"http/1.1 405")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (b"", False),
        (b"*/*", False),
        (PROTOBUF_CONTENT_TYPE, True),
        (PROTOBUF_CONTENT_TYPE + b";q=0.2,text/plain;q=0.9", False),
        (b"application/vnd.google.protobuf", False),
        (PROTOBUF_CONTENT_TYPE + b";q=0", False),
        (PROTOBUF_CONTENT_TYPE + b";q=nonsense", False),
    ],
)
def test_accept_header(accept: bytes, expected: bool) -> None:
    assert accepts_protobuf(accept) is expected
