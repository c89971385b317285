"""Who may call what: restricted parts, forwarded metadata, TLS with and without certificates of clients."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.contract.proto import health_pb2
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.restricted_access import RestrictedAccess, parse_group
from serving_node.wire.tls import ALPN_GRPC, server_context
from tests.serving_node.wire.test_tls_context import Authority

from .calls import SERVICE, Feed, infer_method, raw_request, serving, stream_method

KEY = "triton-grpc-protocol-admin"


def status_of(channel: grpc.Channel, path: str, metadata: Any = None) -> tuple[str, str]:
    call = channel.unary_unary(path).future(b"", timeout=20, metadata=metadata)
    return call.code().name, call.details()


@pytest.mark.parametrize(
    ("part", "methods"),
    [
        ("health", ["ServerLive", "ServerReady", "ModelReady", "/grpc.health.v1.Health/Check"]),
        (
            "metadata",
            ["ServerMetadata", "ModelMetadata", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"],
        ),
        ("inference", ["ModelInfer"]),
        ("shared-memory", ["SystemSharedMemoryStatus", "CudaSharedMemoryUnregister"]),
        ("model-config", ["ModelConfig"]),
        ("model-repository", ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"]),
        ("statistics", ["ModelStatistics"]),
        ("trace", ["TraceSetting"]),
        ("logging", ["LogSettings"]),
    ],
)
def test_restricted_parts(dataplane: Any, loop_thread: Any, part: str, methods: list[str]) -> None:
    restricted = RestrictedAccess.for_grpc([parse_group(f"{part}:admin=s3cret")])
    refused = ("UNAVAILABLE", f"This protocol is restricted, expecting header '{KEY}'")
    with (
        serving(dataplane, loop_thread, restricted=restricted) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        for method in methods:
            path = method if method.startswith("/") else SERVICE + method
            for metadata in (None, [(KEY, "wrong")], [("admin", "s3cret")]):
                assert status_of(channel, path, metadata) == refused
            assert status_of(channel, path, [(KEY, "s3cret")]) != refused
        other = "ModelConfig" if part == "metadata" else "ServerMetadata"
        assert status_of(channel, SERVICE + other)[0] != "UNAVAILABLE"


def test_restricted_streams(dataplane: Any, loop_thread: Any) -> None:
    restricted = RestrictedAccess.for_grpc([parse_group("inference:admin=s3cret")])
    feed = Feed()
    feed.put(None)
    with (
        serving(dataplane, loop_thread, restricted=restricted) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        responses = stream_method(channel)(iter(feed), timeout=20)
        assert responses.code() is grpc.StatusCode.UNAVAILABLE


def test_forwarded_metadata(dataplane: Any, loop_thread: Any) -> None:
    request = raw_request(b"a")
    request.parameters["mine"].int64_param = 1
    metadata = [("x-a", "1"), ("x-b", "1"), ("x-b", "2"), ("x-c-bin", b"bytes"), ("y", "no")]
    with (
        serving(dataplane, loop_thread, forwarding=HeaderForwarding("x-|te|grpc")) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        infer_method(channel)(request, timeout=20, metadata=metadata)
        assert dataplane.requests[0].parameters == {"mine": 1, "x-a": "1", "x-b": "2", "x-c-bin": "bytes"}
        list(stream_method(channel)(iter([raw_request(b"a")]), timeout=20, metadata=[("x-a", "3")]))
        assert dataplane.requests[1].parameters == {"x-a": "3"}


def test_reserved_names_are_not_forwarded(dataplane: Any, loop_thread: Any) -> None:
    sentence = "Header 'timeout' is reserved for Triton usage and cannot be forwarded."
    with (
        serving(dataplane, loop_thread, forwarding=HeaderForwarding(".*")) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        future = infer_method(channel).future(raw_request(b"a"), timeout=20, metadata=[("timeout", "1")])
        assert (future.code().name, future.details()) == ("INVALID_ARGUMENT", sentence)
        feed = stream_method(channel)(iter([raw_request(b"a", "echo", "1")]), timeout=20, metadata=[("timeout", "1")])
        assert [(r.error_message, r.infer_response.id) for r in feed] == [(sentence, "1")]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_tls(authority: Authority, *, mutual: bool) -> ssl.SSLContext:
    certificate, key = authority.issue("localhost")
    return server_context(certificate, key, root=authority.file, mutual=mutual, protocols=ALPN_GRPC)


@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_tls(dataplane: Any, loop_thread: Any, authority: Authority, mutual: bool, size: int) -> None:
    certificate, key = authority.issue("client")
    pair = (key.read_bytes(), certificate.read_bytes()) if mutual else (None, None)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), *pair)
    with (
        serving(dataplane, loop_thread, tls=server_tls(authority, mutual=mutual)) as port,
        grpc.secure_channel(f"localhost:{port}", credentials) as channel,
    ):
        data = bytes(size)
        assert infer_method(channel)(raw_request(data), timeout=30).raw_output_contents == [data]
        responses = stream_method(channel)(iter([raw_request(data)] * 3), timeout=30)
        assert [r.infer_response.raw_output_contents for r in responses] == [[data]] * 3


def test_mutual_tls_refuses_strangers(dataplane: Any, loop_thread: Any, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, key = Authority(tmp_path / "other", "other").issue("client")
    root = authority.file.read_bytes()
    with serving(dataplane, loop_thread, tls=server_tls(authority, mutual=True)) as port:
        for pair in ((None, None), (key.read_bytes(), certificate.read_bytes())):
            credentials = grpc.ssl_channel_credentials(root, *pair)
            with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
                future = infer_method(channel).future(raw_request(b"a"), timeout=20)
                assert future.code() is grpc.StatusCode.UNAVAILABLE
    assert dataplane.requests == []


def test_plain_text_to_a_tls_port(dataplane: Any, loop_thread: Any, authority: Authority) -> None:
    with (
        serving(dataplane, loop_thread, tls=server_tls(authority, mutual=False)) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        future = infer_method(channel).future(raw_request(b"a"), timeout=20)
        assert future.code() is grpc.StatusCode.UNAVAILABLE


async def test_alpn_chooses_http2(authority: Authority, dataplane: Any, loop_thread: Any) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.set_alpn_protocols(["h2"])
    with serving(dataplane, loop_thread, tls=server_tls(authority, mutual=False)) as port:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        settings = await asyncio.wait_for(reader.readexactly(9), 20)
        assert settings[3] == 4
        writer.close()


def test_health_over_tls(dataplane: Any, loop_thread: Any, authority: Authority) -> None:
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    with (
        serving(dataplane, loop_thread, tls=server_tls(authority, mutual=False)) as port,
        grpc.secure_channel(f"localhost:{port}", credentials) as channel,
    ):
        raw = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
        assert health_pb2.HealthCheckResponse.FromString(raw).status == health_pb2.HealthCheckResponse.SERVING
        assert pb.ServerLiveResponse.FromString(channel.unary_unary(SERVICE + "ServerLive")(b"", timeout=20)).live
