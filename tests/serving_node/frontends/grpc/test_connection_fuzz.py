"""The gRPC side of a connection under any bytes: nothing is raised, nothing is logged as a bug."""

from __future__ import annotations

import asyncio
import logging
import struct
import zlib
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hpack import Encoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.grpc.connection import GrpcConnection, GrpcLimits
from serving_node.frontends.grpc.infer import InferService
from serving_node.frontends.grpc.routing import Routes
from serving_node.frontends.grpc.service import Services
from serving_node.wire.http2.frames import PREFACE
from serving_node.wire.listener import Listener

from .calls import raw_request
from .raw_client import CONTINUATION, DATA, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame

SERVICE = "/inference.GRPCInferenceService/"
PATHS = [
    SERVICE + "ModelInfer",
    SERVICE + "ModelStreamInfer",
    SERVICE + "ServerLive",
    SERVICE + "ModelConfig",
    SERVICE + "LogSettings",
    SERVICE + "RepositoryIndex",
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/no.such/Method",
    "",
]
MESSAGES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(["echo", "twice", "split", "fail", "refuse", "unknown", "hold"]).map(
        lambda model: raw_request(b"abc", model, "1").SerializeToString()
    ),
    st.builds(
        lambda name, value: pb.ModelInferRequest(
            model_name="echo", parameters={name: pb.InferParameter(int64_param=value)}
        ).SerializeToString(),
        st.sampled_from(["timeout", "x", "triton_x"]),
        st.integers(-5, 5),
    ),
)


@st.composite
def calls(draw: st.DrawFn, stream: int) -> bytes:
    """Return the frames of one call, right or wrong."""
    fields = [(":method", draw(st.sampled_from(["POST", "POST", "POST", "GET"]))), (":scheme", "http")]
    fields += [(":path", draw(st.sampled_from(PATHS))), (":authority", "x")]
    fields.append(("content-type", draw(st.sampled_from(["application/grpc", "application/grpc", "text/plain"]))))
    encoding = draw(st.sampled_from(["identity", "gzip", "deflate", "snappy"]))
    if draw(st.booleans()):
        fields.append(("grpc-encoding", encoding))
    if draw(st.booleans()):
        fields.append(("grpc-timeout", draw(st.sampled_from(["0n", "1H", "5S", "nonsense", "99999999H"]))))
    if draw(st.booleans()):
        fields.append(("triton_grpc_error", "true"))
    body = b""
    for message in draw(st.lists(MESSAGES, max_size=3)):
        flag = draw(st.sampled_from([0, 0, 0, 1, 2]))
        content = zlib.compress(message) if flag == 1 and encoding == "deflate" else message
        wrong = draw(st.sampled_from([0, 0, 0, 0, 1, -1, 2**31]))
        body += struct.pack(">BI", flag, max(len(content) + wrong, 0)) + content
    block = Encoder().encode(fields)
    ends = draw(st.booleans())
    out = frame(HEADERS, 4 | (0 if body else int(ends)), stream, block)
    while body:
        size = draw(st.integers(1, len(body)))
        piece, body = body[:size], body[size:]
        out += frame(DATA, int(ends and not body), stream, piece)
    if draw(st.integers(0, 5)) == 0:
        out += frame(RST_STREAM, 0, stream, bytes(4))
    return out


NOISE = st.one_of(
    st.builds(frame, st.integers(0, 12), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=30)),
    st.just(frame(PING, 0, 0, bytes(8))),
    st.just(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 10))),
    st.just(frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x09")),
    st.just(frame(CONTINUATION, 4, 1)),
)


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    parts = [PREFACE + frame(SETTINGS, 0, 0)]
    for index in range(draw(st.integers(1, 5))):
        parts.append(draw(calls(2 * index + 1)))
        if draw(st.integers(0, 3)) == 0:
            parts.append(draw(NOISE))
    return b"".join(parts)


class FakeTransport:
    """Takes what is written and forgets it."""

    def __init__(self) -> None:
        self.written = 0
        self.closed = False

    def writelines(self, parts: list[Any]) -> None:
        assert not self.closed or not parts
        self.written += sum(len(part) for part in parts)

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_extra_info(self, name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0


class Bugs(logging.Handler):
    """Notes what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage() + str(record.exc_info))


@pytest.fixture
def bugs() -> Iterator[Bugs]:
    handler = Bugs()
    logging.getLogger("serving_node").addHandler(handler)
    yield handler
    logging.getLogger("serving_node").removeHandler(handler)


async def converse(dataplane: Any, data: bytes, cuts: list[int]) -> tuple[GrpcConnection, FakeTransport]:
    pool = CodecPool()
    services = Services(dataplane, InferService(dataplane, pool))
    listener = Listener(lambda _: asyncio.Protocol())
    routes = Routes(services.methods, 16_000)
    connection = GrpcConnection(routes, GrpcLimits(max_message_bytes=10_000), listener)
    transport = FakeTransport()
    connection.connection_made(cast(asyncio.BaseTransport, transport))
    while data and not transport.closed:
        size = cuts.pop() if cuts else len(data)
        buffer = connection.get_buffer(-1)
        piece = data[: min(size, len(buffer))]
        buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        data = data[len(piece) :]
    connection.check_deadlines(asyncio.get_running_loop().time() + 30.0)
    await asyncio.sleep(0)
    connection.connection_lost(None)
    pool.close()
    return connection, transport


@pytest.mark.fuzz
@given(data=conversations(), cuts=st.lists(st.integers(1, 100), max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_conversation(dataplane: Any, bugs: Bugs, data: bytes, cuts: list[int]) -> None:
    dataplane.requests.clear()
    bugs.records.clear()
    connection, transport = asyncio.run(converse(dataplane, data, cuts))
    assert bugs.records == []
    assert not connection.http2.streams
    assert connection.http2.queued_bytes == 0
    assert transport.written < 200_000
    assert all(request.cancelled or request.model_name != "hold" for request in dataplane.requests)
