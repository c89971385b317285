"""Clients that ask for more than they give are cut off, and others do not notice."""

from __future__ import annotations

import struct
from typing import Any

import grpc
import pytest

from serving_node.frontends.grpc import GrpcLimits
from serving_node.wire.http2 import Http2Limits

from .calls import infer_method, raw_request, serving
from .raw_client import (
    CONTINUATION,
    DATA,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    RawClient,
    frame,
)

CALM = 11
LITTLE = Http2Limits(control_burst=100, control_per_refill=10)


def message_of(data: bytes, model: str = "echo") -> bytes:
    raw = raw_request(data, model).SerializeToString()
    return struct.pack(">BI", 0, len(raw)) + raw


def open_call(client: RawClient, stream: int, data: bytes = b"a", model: str = "echo", *, end: bool = True) -> bytes:
    return frame(HEADERS, 4, stream, client.headers()) + frame(DATA, int(end), stream, message_of(data, model))


FLOODS = {
    "rapid reset": lambda client: [
        open_call(client, stream, model="hold", end=False) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
        for stream in range(1, 4001, 2)
    ],
    "rapid reset before the message": lambda client: [
        frame(HEADERS, 4, stream, client.headers()) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
        for stream in range(1, 4001, 2)
    ],
    "requests that make the server reset": lambda client: [
        frame(HEADERS, 5, stream, client.headers(CONNECTION="x")) for stream in range(1, 4001, 2)
    ],
    "CONTINUATION": lambda client: [
        frame(HEADERS, 0, 1, client.headers()),
        *[frame(CONTINUATION, 0, 1, b"")] * 2000,
    ],
    "PING": lambda client: [frame(PING, 0, 0, bytes(8))] * 2000,
    "PING answers": lambda client: [frame(PING, 1, 0, bytes(8))] * 2000,
    "SETTINGS": lambda client: [frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 100))] * 2000,
    "empty DATA": lambda client: [
        open_call(client, 1, end=False),
        *[frame(DATA, 0, 1)] * 2000,
    ],
    "padding": lambda client: [
        open_call(client, 1, end=False),
        *[frame(DATA, 8, 1, b"\x00")] * 200,
        *[frame(DATA, 0, 3)] * 2000,
    ],
    "PRIORITY": lambda client: [frame(PRIORITY, 0, stream, bytes(5)) for stream in range(1, 4001, 2)],
    "unknown frames": lambda client: [frame(0xEE, 0, 0, b"x")] * 2000,
}


@pytest.mark.parametrize("name", list(FLOODS))
def test_floods_are_cut_off(dataplane: Any, loop_thread: Any, name: str) -> None:
    with (
        serving(dataplane, loop_thread, limits=GrpcLimits(http2=LITTLE)) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
        RawClient(port) as client,
    ):
        client.read()
        client.send(*FLOODS[name](client))
        client.until_closed()
        assert client.goaway is None or client.goaway[0] in (CALM, 1)
        assert len(dataplane.requests) < 500
        assert infer_method(channel)(raw_request(b"abc"), timeout=30).raw_output_contents == [b"abc"]
        assert all(request.cancelled for request in dataplane.requests if request.model_name == "hold")


def test_too_many_pings_by_default(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        client.send(*[frame(PING, 0, 0, bytes(8))] * 4)
        client.until_closed()
        assert client.goaway == (CALM, b"too_many_pings")


def test_a_header_list_that_unpacks_to_much_more(dataplane: Any, loop_thread: Any) -> None:
    # one entry of 4 KiB in the table, named again and again by one byte each
    block = b"\x40\x01a" + b"\x7f\xe1\x1e" + b"x" * 4000 + b"\xbe" * 60_000
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        client.read()
        client.send(frame(HEADERS, 5, 1, block[:16000]))
        client.until_closed()
        assert client.goaway is not None


def test_a_call_with_too_many_headers_fails_alone(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        call = infer_method(channel).future(raw_request(b"a"), timeout=20, metadata=[("x", "y" * 20_000)])
        assert call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "received metadata size exceeds hard limit" in call.details()
        assert infer_method(channel)(raw_request(b"abc"), timeout=30).raw_output_contents == [b"abc"]


def test_windows_beyond_their_limit(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        client.send(*[frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff")] * 2)
        client.until_closed()
        assert client.goaway is not None
        assert client.goaway[0] == 3


def test_a_client_without_windows_gets_no_further_calls(dataplane: Any, loop_thread: Any) -> None:
    limits = GrpcLimits(max_queued_bytes=1 << 20, stall_seconds=1.0)
    nothing = struct.pack(">HI", 4, 0)
    with serving(dataplane, loop_thread, limits=limits) as port, RawClient(port, settings=nothing) as client:
        client.send(*[open_call(client, stream, bytes(100_000)) for stream in range(1, 41, 2)])
        dataplane.wait_for(11)
        frames = client.until_closed()
        assert client.goaway == (CALM, b"the client does not read its answers")
        assert len(dataplane.requests) < 20
        refused = [
            client.decoder.decode(payload) for kind, flags, _, payload in frames if kind == HEADERS and flags & 1
        ]
        assert refused
        assert {dict(fields)["grpc-status"] for fields in refused} == {"8"}


def test_a_client_that_does_not_read_its_socket(dataplane: Any, loop_thread: Any) -> None:
    wide = struct.pack(">HI", 4, 2**31 - 1)
    limits = GrpcLimits(max_queued_bytes=4 << 20, stall_seconds=1.0)
    with (
        serving(dataplane, loop_thread, limits=limits) as port,
        RawClient(port, settings=wide, receive_buffer=4096) as client,
    ):
        client.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1 - 65535)))
        client.socket.setblocking(False)
        stream, pending = 1, b""
        while len(dataplane.requests) < 60:
            pending = pending or open_call(client, stream, bytes(500_000), end=True)
            try:
                sent = client.socket.send(pending)
            except BlockingIOError:
                break  # the server does not read any more either
            except ConnectionError:
                break
            pending = pending[sent:]
            stream += 0 if pending else 2
        assert len(dataplane.requests) < 60


def test_slow_requests_end(dataplane: Any, loop_thread: Any) -> None:
    limits = GrpcLimits(request_seconds=0.5)
    with serving(dataplane, loop_thread, limits=limits) as port, RawClient(port) as client:
        client.send(frame(HEADERS, 4, 1, client.headers()), frame(DATA, 0, 1, b"\0\0\0\1"))
        fields: dict[str, str] = {}
        while "grpc-status" not in fields:
            for kind, _, _, payload in client.read():
                if kind == HEADERS:
                    fields |= {str(name): str(value) for name, value in client.decoder.decode(payload)}
        assert fields["grpc-status"] == "4"


def test_only_gets_and_other_content_types_are_told_so(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        get = client.encoder.encode([(":method", "GET"), (":scheme", "http"), (":path", "/v2"), (":authority", "x")])
        post = client.encoder.encode(
            [(":method", "POST"), (":scheme", "http"), (":path", "/v2"), ("content-type", "application/json")]
        )
        client.send(frame(HEADERS, 5, 1, get), frame(HEADERS, 5, 3, post))
        status: list[str] = []
        while len(status) < 2:
            for kind, _, _, payload in client.read():
                if kind == HEADERS:
                    status += [value for name, value in client.decoder.decode(payload) if name == ":status"]
        assert status == ["405", "415"]
