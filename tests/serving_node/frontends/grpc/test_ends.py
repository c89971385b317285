"""How connections and calls end: silence, age, deadlines, the end of the node."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceResponse
from serving_node.frontends.grpc import GrpcFrontend, GrpcLimits
from serving_node.wire.http2 import KeepAlivePolicy

from .calls import Feed, infer_method, raw_request, serving, stream_method
from .raw_client import DATA, GOAWAY, HEADERS, PING, RawClient, frame

STOPPING = "GRPC server is shutting down and has stopped accepting new requests."


def call_frames(client: RawClient, stream: int, model: str, path: str = "ModelInfer") -> bytes:
    raw = raw_request(b"a", model, str(stream)).SerializeToString()
    message = struct.pack(">BI", 0, len(raw)) + raw
    head = client.headers(f"/inference.GRPCInferenceService/{path}")
    return frame(HEADERS, 4, stream, head) + frame(DATA, int(path != "ModelStreamInfer"), stream, message)


def status_of(client: RawClient, stream: int, frames: list[tuple[int, int, int, bytes]]) -> tuple[str, str]:
    """Return the status and the message of a call. Decodes all header blocks: call it once for all frames."""
    found: dict[str, str] = {}
    for kind, _, at, payload in frames:
        if kind == HEADERS:
            fields = {str(name): str(value) for name, value in client.decoder.decode(payload)}
            found |= fields if at == stream else {}
    return found.get("grpc-status", ""), found.get("grpc-message", "")


def test_a_silent_client_is_pinged_and_closed(dataplane: Any, loop_thread: Any) -> None:
    policy = KeepAlivePolicy(ping_seconds=0.5, timeout_seconds=0.5, permit_without_calls=True)
    with serving(dataplane, loop_thread, limits=GrpcLimits(keep_alive=policy)) as port, RawClient(port) as client:
        assert [kind for kind, flags, _, _ in client.until_closed() if kind == PING and not flags] == [PING]


def test_a_client_without_calls_is_left_alone_by_default(dataplane: Any, loop_thread: Any) -> None:
    limits = GrpcLimits(keep_alive=KeepAlivePolicy(ping_seconds=0.1))
    with serving(dataplane, loop_thread, limits=limits) as port, RawClient(port) as client:
        client.send(call_frames(client, 1, "hold"))
        while not any(kind == PING for kind, *_ in client.read()):
            pass
        assert len(dataplane.wait_for(1)) == 1


def test_an_old_connection_is_retired(dataplane: Any, loop_thread: Any) -> None:
    policy = KeepAlivePolicy(max_age_seconds=1.0, max_age_grace_seconds=1.0)
    with serving(dataplane, loop_thread, limits=GrpcLimits(keep_alive=policy)) as port, RawClient(port) as client:
        client.send(call_frames(client, 1, "hold"))
        frames = client.until_closed()
        goaways = [payload for kind, _, _, payload in frames if kind == GOAWAY]
        assert goaways[0] == b"\x7f\xff\xff\xff\0\0\0\0max_age"
        assert goaways[-1] == b"\0\0\0\x01\0\0\0\0max_age"
        assert status_of(client, 1, frames) == ("14", "the connection has reached its maximum age")
        assert dataplane.requests[0].cancelled


def test_two_nodes_on_one_port(dataplane: Any, loop_thread: Any) -> None:
    frontends = [loop_thread.call(lambda: GrpcFrontend(dataplane)) for _ in range(3)]
    port = loop_thread.run(frontends[0].serve("localhost", 0, reuse_port=True)).sockets[0].getsockname()[1]
    loop_thread.run(frontends[1].serve("localhost", port, reuse_port=True))
    with pytest.raises(OSError, match="in use"):
        loop_thread.run(frontends[2].serve("localhost", port))
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        assert infer_method(channel)(raw_request(b"abc"), timeout=30).raw_output_contents == [b"abc"]
    for frontend in frontends:
        loop_thread.run(frontend.stop(1.0))


def test_clients_move_to_a_new_connection(dataplane: Any, loop_thread: Any) -> None:
    policy = KeepAlivePolicy(max_age_seconds=0.2)
    limits = GrpcLimits(keep_alive=policy)
    with serving(dataplane, loop_thread, limits=limits) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        infer = infer_method(channel)
        held = infer.future(raw_request(b"abc", "hold"), timeout=30)
        (request,) = dataplane.wait_for(1)
        retired = threading.Event()
        channel.subscribe(lambda state: retired.set() if state is grpc.ChannelConnectivity.IDLE else None)
        assert retired.wait(20)
        assert infer(raw_request(b"new"), timeout=30, wait_for_ready=True).raw_output_contents == [b"new"]
        loop_thread.call(lambda: dataplane.answer(request))
        assert held.result(20).raw_output_contents == [b"abc"]


def test_a_retired_port_finishes_what_runs(dataplane: Any, loop_thread: Any) -> None:
    frontend = loop_thread.call(lambda: GrpcFrontend(dataplane))
    port = loop_thread.run(frontend.serve("localhost", 0)).sockets[0].getsockname()[1]
    with RawClient(port) as client:
        client.send(call_frames(client, 1, "hold"))
        (request,) = dataplane.wait_for(1)
        loop_thread.call(frontend.retire)
        loop_thread.call(frontend.retire)
        client.send(call_frames(client, 3, "echo"))
        frames: list[tuple[int, int, int, bytes]] = []
        while not any(kind == HEADERS for kind, *_ in frames):
            frames += client.read()
        assert [kind for kind, *_ in frames].count(GOAWAY) == 1
        loop_thread.call(lambda: dataplane.answer(request))
        client.send(*[frame(PING, 1, 0, payload) for kind, flags, _, payload in frames if kind == PING and not flags])
        frames += client.until_closed()
    assert status_of(client, 3, frames) == ("14", STOPPING)
    assert (DATA, 1) in [(kind, stream) for kind, _, stream, _ in frames]
    loop_thread.run(frontend.stop(1.0))


@pytest.fixture
def stopping(dataplane: Any, loop_thread: Any) -> Iterator[tuple[GrpcFrontend, int, list[threading.Thread]]]:
    """A frontend, its port, and where the test puts the thread that stops it."""
    frontend = loop_thread.call(lambda: GrpcFrontend(dataplane))
    server = loop_thread.run(frontend.serve("localhost", 0))
    threads: list[threading.Thread] = []
    yield frontend, server.sockets[0].getsockname()[1], threads
    for request in dataplane.requests:
        loop_thread.call(lambda request=request: dataplane.answer(request))
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_a_stopping_node_refuses_infer_and_finishes_what_runs(
    stopping: tuple[GrpcFrontend, int, list[threading.Thread]], dataplane: Any, loop_thread: Any
) -> None:
    frontend, port, threads = stopping
    with RawClient(port) as client:
        client.send(call_frames(client, 1, "hold"), call_frames(client, 3, "hold", "ModelStreamInfer"))
        first, streamed = dataplane.wait_for(2)
        threads.append(threading.Thread(target=lambda: loop_thread.run(frontend.stop(20))))
        threads[0].start()
        frames: list[tuple[int, int, int, bytes]] = []
        while not any(kind == GOAWAY for kind, *_ in frames):
            frames += client.read()
        # on their way when the client was told
        late = raw_request(b"a", "echo", "late").SerializeToString()
        client.send(
            call_frames(client, 5, "echo"),
            call_frames(client, 7, "echo", "ServerLive"),
            frame(DATA, 1, 3, struct.pack(">BI", 0, len(late)) + late),
        )
        while not any(kind == HEADERS and stream == 5 for kind, _, stream, _ in frames):
            frames += client.read()
        for request in (first, streamed):
            loop_thread.call(lambda request=request: dataplane.answer(request))
        for kind, flags, _, payload in frames:
            if kind == PING and not flags:
                client.send(frame(PING, 1, 0, payload))
        dataplane.requests.clear()
        frames += client.until_closed()
    goaways = [(payload[:4], payload[4:8]) for kind, _, _, payload in frames if kind == GOAWAY]
    assert goaways == [(b"\x7f\xff\xff\xff", bytes(4)), (b"\0\0\0\x07", bytes(4))]
    body = b"".join(payload for kind, _, stream, payload in frames if (kind, stream) == (DATA, 3))
    answers = []
    while body:
        (size,) = struct.unpack(">I", body[1:5])
        answers.append(pb.ModelStreamInferResponse.FromString(body[5 : 5 + size]))
        body = body[5 + size :]
    assert [(a.infer_response.id, a.error_message) for a in answers] == [("3", ""), ("late", STOPPING)]
    assert status_of(client, 5, frames) == ("14", STOPPING)


def test_the_deadline_of_a_stream_cancels_all_its_requests(dataplane: Any, loop_thread: Any) -> None:
    feed = Feed()
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        grpc.channel_ready_future(channel).result(30)
        responses = stream_method(channel)(iter(feed), timeout=1.5)
        for request_id in "12":
            feed.put(raw_request(b"a", "hold", request_id))
        requests = dataplane.wait_for(2)
        events = [threading.Event() for _ in requests]
        for request, event in zip(requests, events, strict=True):
            assert request.deadline_ns > 0
            loop_thread.call(lambda r=request, e=event: setattr(r, "on_cancel", lambda _: e.set()))
        assert responses.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert all(event.wait(20) for event in events)
        feed.put(None)


@pytest.mark.parametrize(
    ("timeout", "status"),
    [("0n", ("4", "Deadline Exceeded")), ("60S", ("0", "")), ("soon", ("13", "malformed grpc-timeout"))],
)
def test_deadlines_that_are_over_or_make_no_sense(
    dataplane: Any, loop_thread: Any, timeout: str, status: tuple[str, str]
) -> None:
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        raw = raw_request(b"a").SerializeToString()
        client.send(
            frame(HEADERS, 4, 1, client.headers(grpc_timeout=timeout)),
            frame(DATA, 1, 1, struct.pack(">BI", 0, len(raw)) + raw),
        )
        frames: list[tuple[int, int, int, bytes]] = []
        while not any(kind == HEADERS and flags & 1 for kind, flags, *_ in frames):
            frames += client.read()
        assert status_of(client, 1, frames) == status


def test_the_node_keeps_deadlines_for_clients_that_do_not(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        block = client.headers(grpc_timeout="100m")
        raw = raw_request(b"a", "hold").SerializeToString()
        client.send(frame(HEADERS, 4, 1, block), frame(DATA, 1, 1, struct.pack(">BI", 0, len(raw)) + raw))
        frames: list[tuple[int, int, int, bytes]] = []
        while not any(kind == HEADERS for kind, *_ in frames):
            frames += client.read()
        assert status_of(client, 1, frames) == ("4", "Deadline Exceeded")
        assert dataplane.requests[0].cancelled


def test_an_error_after_the_deadline_is_the_deadline(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        block = client.headers(grpc_timeout="20m")
        raw = raw_request(b"a", "hold").SerializeToString()
        client.send(frame(HEADERS, 4, 1, block), frame(DATA, 1, 1, struct.pack(">BI", 0, len(raw)) + raw))
        (request,) = dataplane.wait_for(1)
        error = InferenceError(ErrorCode.UNAVAILABLE, "Request timeout expired")

        def expired() -> None:
            while time.monotonic_ns() < request.deadline_ns:
                pass
            request.on_response(InferenceResponse("hold", "1", error=error))

        loop_thread.call(expired)
        frames: list[tuple[int, int, int, bytes]] = []
        while not any(kind == HEADERS for kind, *_ in frames):
            frames += client.read()
        assert status_of(client, 1, frames) == ("4", "Deadline Exceeded")
