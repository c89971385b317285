"""Both frontends over TLS."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest
import tritonclient.http as triton

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.frontends.grpc import GrpcFrontend
from serving_node.frontends.http import HttpFrontend

x509 = pytest.importorskip("cryptography.x509")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate for localhost and its key."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "node.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def server_context(certificate: Path, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(protocols)
    return context


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_grpc(dataplane: Any, loop_thread: Any, certificate: Path, size: int) -> None:
    frontend = loop_thread.call(lambda: GrpcFrontend(dataplane))
    server = loop_thread.run(frontend.serve("localhost", 0, tls=server_context(certificate, "h2")))
    port = server.sockets[0].getsockname()[1]
    request = pb.ModelInferRequest(model_name="echo", raw_input_contents=[bytes(size)])
    request.inputs.add(name="INPUT0", datatype="UINT8", shape=[size])
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        assert infer(request, timeout=30).raw_output_contents == [bytes(size)]
    loop_thread.run(frontend.stop(1))


def test_http(dataplane: Any, loop_thread: Any, certificate: Path) -> None:
    frontend = loop_thread.call(lambda: HttpFrontend(dataplane))
    server = loop_thread.run(frontend.serve("localhost", 0, tls=server_context(certificate)))
    port = server.sockets[0].getsockname()[1]
    with triton.InferenceServerClient(
        f"localhost:{port}", ssl=True, ssl_context_factory=lambda: ssl.create_default_context(cafile=certificate)
    ) as client:
        assert client.is_server_live()
        assert client.get_model_config("echo")["max_batch_size"] == 8
    loop_thread.run(frontend.stop(1))


async def test_plain_bytes_on_a_tls_port_harm_nobody(dataplane: Any, certificate: Path) -> None:
    frontend = HttpFrontend(dataplane)
    server = await frontend.serve("127.0.0.1", 0, tls=server_context(certificate))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    writer.write(b"GET /v2 HTTP/1.1\r\n\r\n")
    assert b"HTTP" not in await asyncio.wait_for(reader.read(), 20)
    writer.close()
    await frontend.stop(1)
