"""What a node of its own needs for many HTTP connections and for the largest bodies."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving_node.server.processes import NodeProcess

CONFIG = """
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_UINT8 dims: [-1] }, { name: "INPUT1" data_type: TYPE_UINT8 dims: [-1] } ]
output [ { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [-1] }, { name: "OUTPUT1" data_type: TYPE_UINT8 dims: [-1] } ]
"""
PIECE = bytes(1 << 20)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    (tmp_path / "models" / "pair" / "1").mkdir(parents=True)
    (tmp_path / "models" / "pair" / "config.pbtxt").write_text(CONFIG)
    node = NodeProcess(
        tmp_path / "node.log", f"--model-repository={tmp_path / 'models'}", f"--http-max-input-size={3 << 30}"
    )
    try:
        yield node.start().until_ready()
    finally:
        node.end()


def memory(node: NodeProcess, key: str) -> int:
    """Return VmRSS or VmHWM (the peak) of the node in bytes."""
    assert node.process is not None
    text = Path(f"/proc/{node.process.pid}/status").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024


def connect(node: NodeProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.http), timeout=120)


def description(size: int) -> bytes:
    inputs = [
        {"name": name, "datatype": "UINT8", "shape": [length], "parameters": {"binary_data_size": length}}
        for name, length in (("INPUT0", size), ("INPUT1", 3))
    ]
    return json.dumps({"inputs": inputs, "outputs": [{"name": "OUTPUT1"}]}).encode()


def head(described: bytes, framing: bytes) -> bytes:
    fixed = b"POST /v2/models/pair/infer HTTP/1.1\r\nInference-Header-Content-Length: %d\r\n" % len(described)
    return fixed + framing + b"\r\n\r\n"


def answer(client: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b'"data":[97,98,99]}]}'):
        piece = client.recv(65536)
        assert piece, received
        received += piece
    return received


@pytest.mark.slow
@pytest.mark.integration
def test_ten_thousand_idle_connections(node: NodeProcess) -> None:
    count, open_files = 10_000, resource.getrlimit(resource.RLIMIT_NOFILE)
    if open_files[1] < count + 500:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files[1], open_files[1]))
    clients: list[socket.socket] = []
    try:
        before = memory(node, "VmRSS")
        clients += (connect(node) for _ in range(count))
        for client in clients:
            client.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        assert all(client.recv(100).startswith(b"HTTP/1.1 200") for client in clients)
        assert memory(node, "VmRSS") - before < 200e6
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)


@pytest.mark.slow
@pytest.mark.integration
def test_two_gibibytes_are_received_once(node: NodeProcess) -> None:
    size = 2 << 30
    described = description(size)
    with connect(node) as client:
        before = memory(node, "VmRSS")
        client.sendall(head(described, b"Content-Length: %d" % (len(described) + size + 3)) + described)
        for _ in range(size // len(PIECE)):
            client.sendall(PIECE)
        client.sendall(b"abc")
        assert answer(client).startswith(b"HTTP/1.1 200")
        assert memory(node, "VmHWM") - before < 1.15 * size


@pytest.mark.slow
@pytest.mark.integration
def test_bodies_of_unknown_length_are_received_once(node: NodeProcess) -> None:
    size = 256 << 20
    described = description(size)
    with connect(node) as client:
        before = memory(node, "VmRSS")
        client.sendall(head(described, b"Transfer-Encoding: chunked"))
        for piece in (described, *[PIECE] * (size // len(PIECE)), b"abc", b""):
            client.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        assert answer(client).startswith(b"HTTP/1.1 200")
        assert memory(node, "VmHWM") - before < 1.2 * size
