"""What a node of its own needs for many connections and for the largest message."""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.varint import encode_varint
from tests.serving_node.server.processes import NodeProcess

from .raw_client import DATA, HEADERS, RawClient, frame

CONFIG = """
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_UINT8 dims: [-1] }, { name: "INPUT1" data_type: TYPE_UINT8 dims: [-1] } ]
output [ { name: "OUTPUT0" data_type: TYPE_UINT8 dims: [-1] }, { name: "OUTPUT1" data_type: TYPE_UINT8 dims: [-1] } ]
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    (tmp_path / "models" / "pair" / "1").mkdir(parents=True)
    (tmp_path / "models" / "pair" / "config.pbtxt").write_text(CONFIG)
    node = NodeProcess(tmp_path / "node.log", f"--model-repository={tmp_path / 'models'}")
    try:
        yield node.start().until_ready()
    finally:
        node.end()


def memory(node: NodeProcess, key: str) -> int:
    """Return VmRSS or VmHWM (the peak) of the node in bytes."""
    assert node.process is not None
    (line,) = (
        line for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines() if line.startswith(key)
    )
    return int(line.split()[1]) * 1024


def ask(client: RawClient, request: pb.ModelInferRequest, stream: int) -> None:
    raw = request.SerializeToString()
    client.send(frame(HEADERS, 4, stream, client.headers()))
    client.send(frame(DATA, 1, stream, struct.pack(">BI", 0, len(raw)) + raw))


def small_request() -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="pair", raw_input_contents=[b"a", b"b"])
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="UINT8", shape=[1])
    return request


@pytest.mark.slow
@pytest.mark.integration
def test_ten_thousand_idle_connections(node: NodeProcess) -> None:
    count, open_files = 10_000, resource.getrlimit(resource.RLIMIT_NOFILE)
    if open_files[1] < count + 500:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files[1], open_files[1]))
    clients: list[RawClient] = []
    try:
        before = memory(node, "VmRSS")
        for _ in range(count):
            clients.append(RawClient(node.grpc))
        for client in clients:
            ask(client, small_request(), 1)
        for client in clients:
            while not any(kind == HEADERS and flags & 1 for kind, flags, _, _ in client.read()):
                pass
        grown = memory(node, "VmRSS") - before
        assert grown < 200e6
    finally:
        for client in clients:
            client.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)


@pytest.mark.slow
@pytest.mark.integration
def test_two_gibibytes_are_received_once(node: NodeProcess) -> None:
    size = 2**31 - 64 * 1024
    request = pb.ModelInferRequest(model_name="pair")
    for name, length in (("INPUT0", size), ("INPUT1", 3)):
        request.inputs.add(name=name, datatype="UINT8", shape=[length])
    request.outputs.add(name="OUTPUT1")
    head, tail = request.SerializeToString() + b"\x3a" + encode_varint(size), b"\x3a\x03abc"
    total = len(head) + size + len(tail)
    with RawClient(node.grpc) as client:
        ask(client, small_request(), 1)
        while not any(kind == HEADERS and flags & 1 for kind, flags, _, _ in client.read()):
            pass
        before = memory(node, "VmRSS")
        client.send(frame(HEADERS, 4, 3, client.headers()))
        client.send_data(3, struct.pack(">BI", 0, total) + head)
        chunk = bytes(1 << 20)
        for start in range(0, size, len(chunk)):
            client.send_data(3, memoryview(chunk)[: size - start])
        client.send_data(3, tail, end=True)
        answer = b""
        while not answer:
            answer = b"".join(payload for kind, _, stream, payload in client.read() if (kind, stream) == (DATA, 3))
        assert pb.ModelInferResponse.FromString(answer[5:]).raw_output_contents == [b"abc"]
        assert memory(node, "VmHWM") - before < 1.15 * total
