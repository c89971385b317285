"""Who gets in over HTTP: restricted parts, forwarded headers, TLS and mutual TLS."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.http import HttpFrontend
from serving_node.frontends.restricted_access import RestrictedAccess, parse_group
from serving_node.wire.tls import ALPN_HTTP, server_context
from tests.serving_node.wire.test_tls_context import Authority

Serve = Callable[..., int]
INFER = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}


@pytest.fixture
def serve(dataplane: Any, loop_thread: Any) -> Iterator[Serve]:
    frontends: list[HttpFrontend] = []

    def start(tls: ssl.SSLContext | None = None, **options: Any) -> int:
        frontend = loop_thread.call(lambda: HttpFrontend(dataplane, **options))
        server = loop_thread.run(frontend.serve("localhost", 0, tls=tls))
        frontends.append(frontend)
        port: int = server.sockets[0].getsockname()[1]
        return port

    yield start
    for frontend in frontends:
        loop_thread.run(frontend.stop(1.0))


def ask(
    port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("localhost", port, timeout=30)
    connection.request(method, path, None if body is None else json.dumps(body), headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if content else {}


PATHS = {
    "health": ("GET", "/v2/models/echo/ready"),
    "metadata": ("GET", "/v2"),
    "inference": ("POST", "/v2/models/echo/generate"),
    "shared-memory": ("GET", "/v2/systemsharedmemory/status"),
    "model-config": ("GET", "/v2/models/echo/config"),
    "model-repository": ("POST", "/v2/repository/index"),
    "statistics": ("GET", "/v2/models/stats"),
    "trace": ("GET", "/v2/trace/setting"),
    "logging": ("GET", "/v2/logging"),
}


@pytest.mark.parametrize("category", PATHS)
def test_only_the_restricted_part_wants_its_header(serve: Serve, category: str) -> None:
    port = serve(restricted=RestrictedAccess.for_http([parse_group(f"{category}:Admin-Key=secret")]))
    for other, (method, path) in PATHS.items():
        status, answer = ask(port, method, path)
        assert (status == 403) == (other == category)
        if status == 403:
            assert answer == {"error": "This API is restricted, expecting header 'Admin-Key'"}
    method, path = PATHS[category]
    assert ask(port, method, path, headers={"admin-key": "Secret"})[0] == 403
    assert ask(port, method, path, headers={"ADMIN-KEY": "secret"})[0] != 403


def test_a_restriction_comes_before_everything_else(serve: Serve) -> None:
    port = serve(restricted=RestrictedAccess.for_http([parse_group("inference,metadata:k=v")]))
    assert ask(port, "GET", "/v2/models/echo/infer")[0] == 403
    assert ask(port, "GET", "/v2/models/unknown")[0] == 403
    assert ask(port, "GET", "/openapi.json")[0] == 403
    assert ask(port, "GET", "/nowhere")[0] == 404
    assert ask(port, "GET", "/v2/models/echo/infer", headers={"k": "v"})[0] == 405


def test_headers_become_parameters(serve: Serve, dataplane: Any) -> None:
    port = serve(forwarding=HeaderForwarding("(?i)^x-|timeout"))
    body = {**INFER, "parameters": {"X-Tenant": "body", "own": 1}}
    headers = {"X-Tenant": "a", "x-TRACE": "b", "Other": "c"}
    status, answer = ask(port, "POST", "/v2/models/echo/infer", body, headers)
    assert status == 200
    assert answer["parameters"] == {"X-Tenant": "a", "own": 1, "x-TRACE": "b"}
    status, answer = ask(port, "POST", "/v2/models/echo/infer", INFER, {"timeout": "1"})
    assert (status, answer) == (
        400,
        {"error": "Header 'timeout' is reserved for Triton usage and cannot be forwarded."},
    )


def look(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/v2/health/live")
    connection.getresponse()


@pytest.mark.parametrize("mutual", [False, True])
def test_triton_client_over_tls(serve: Serve, tmp_path: Path, mutual: bool) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    port = serve(server_context(certificate, key, root=authority.file, mutual=mutual, protocols=ALPN_HTTP))
    trusting = ssl.create_default_context(cafile=str(authority.file))
    if mutual:
        connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=trusting)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            look(connection)
        trusting.load_cert_chain(*authority.issue("client"))
    client = triton.InferenceServerClient(
        f"localhost:{port}", ssl=True, ssl_context_factory=lambda: trusting, network_timeout=30
    )
    tensor = triton.InferInput("INPUT0", [3], "FP32")
    data = np.array([1, 2, 3], np.float32)
    tensor.set_data_from_numpy(data)
    assert client.infer("echo", [tensor]).as_numpy("OUTPUT0").tolist() == data.tolist()
    client.close()


def test_strangers_to_the_authority_are_kept_out(serve: Serve, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    port = serve(server_context(certificate, key, protocols=ALPN_HTTP))
    connection = http.client.HTTPSConnection("localhost", port, timeout=30, context=ssl.create_default_context())
    with pytest.raises(ssl.SSLCertVerificationError):
        look(connection)
    plain = http.client.HTTPConnection("localhost", port, timeout=30)
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        look(plain)


def test_two_may_share_a_port(dataplane: Any, loop_thread: Any) -> None:
    first, second = (loop_thread.call(lambda: HttpFrontend(dataplane)) for _ in range(2))
    port = loop_thread.run(first.serve("localhost", 0, reuse_port=True)).sockets[0].getsockname()[1]
    loop_thread.run(second.serve("localhost", port, reuse_port=True))
    loop_thread.run(first.stop(1.0))
    assert ask(port, "GET", "/v2/health/live")[0] == 200
    loop_thread.run(second.stop(1.0))
