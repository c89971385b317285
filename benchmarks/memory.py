"""What a node's memory grows by over a million requests, half of them HTTP, half gRPC. It must not grow.

The client is our own: requests are written in bunches on one connection for each protocol. One request in eight is
refused (a shape that the model does not take), one in four has an id of its own, so that no memo fits it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
import urllib.request
from pathlib import Path

import psutil

from benchmarks.models import write_ours
from benchmarks.options import Options
from benchmarks.peers import node_command, running
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.wire.http2 import encode_headers, frames

_BUNCH = 64
_SAMPLES = 10
# More than this per request would be a leak: the smallest object that could stay behind is larger.
_LIMIT_BYTES_PER_REQUEST = 8.0
_MIB = 1024 * 1024


def _kinds(number: int) -> tuple[int, str]:
    """Return the width of a request's tensors (16 is right) and its id."""
    return (15 if number % 8 == 7 else 16), (f"request-{number}" if number % 4 == 1 else "")


class HttpClient:
    """One HTTP/1.1 connection with pipelined requests."""

    async def connect(self, port: int) -> None:
        """Connect; ``port`` is the node's HTTP port."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    async def bunch(self, numbers: range) -> None:
        """Send these requests and read all answers."""
        self._writer.write(b"".join(self._request(number) for number in numbers))
        answered, tail = 0, b""
        while answered < len(numbers):
            data = tail + await asyncio.wait_for(self._reader.read(1 << 18), 60)
            if data == tail:
                raise ConnectionError("the node has closed the connection")
            answered += data.count(b"HTTP/1.1 ")
            tail = data[-8:]

    @staticmethod
    def _request(number: int) -> bytes:
        width, request_id = _kinds(number)
        inputs = [
            {"name": f"INPUT{i}", "datatype": "FP32", "shape": [1, width], "data": [0.5] * width} for i in range(2)
        ]
        body = json.dumps({"id": request_id, "inputs": inputs}).encode()
        return b"POST /v2/models/add_sub/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class GrpcClient:
    """One HTTP/2 connection with a stream for each request of a bunch."""

    def __init__(self) -> None:
        self._streams = itertools.count(1, 2)
        self._credit = frames.DEFAULT_WINDOW
        self._head = encode_headers(
            [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
                (b"content-type", b"application/grpc"),
                (b"te", b"trailers"),
            ]
        )

    async def connect(self, port: int) -> None:
        """Connect; ``port`` is the node's HTTP port, gRPC is one above."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port + 1)
        self._writer.write(frames.PREFACE + _frame(frames.SETTINGS, 0, 0, b""))

    async def bunch(self, numbers: range) -> None:
        """Send these requests and read all answers."""
        messages = [self._message(number) for number in numbers]
        self._credit -= sum(map(len, messages))
        while self._credit < 0:
            await self._read_frame()
        out = bytearray()
        for message in messages:
            stream = next(self._streams)
            out += _frame(frames.HEADERS, frames.END_HEADERS, stream, self._head)
            out += _frame(frames.DATA, frames.END_STREAM, stream, message)
        self._writer.write(out)
        received = ended = 0
        while ended < len(numbers):
            data_bytes, ends = await self._read_frame()
            received += data_bytes
            ended += ends
        if received:
            self._writer.write(_frame(frames.WINDOW_UPDATE, 0, 0, frames.U32.pack(received)))

    async def _read_frame(self) -> tuple[int, bool]:
        """Return the bytes of data that a frame holds and whether it ends a stream."""
        head = await asyncio.wait_for(self._reader.readexactly(9), 60)
        high, low, kind, flags, stream = frames.HEADER.unpack(head)
        payload = await self._reader.readexactly(high << 8 | low)
        if kind == frames.WINDOW_UPDATE and stream == 0:
            self._credit += frames.U32.unpack(payload)[0]
        elif kind in (frames.PING, frames.SETTINGS) and not flags & frames.ACK:
            self._writer.write(_frame(kind, frames.ACK, 0, payload if kind == frames.PING else b""))
        elif kind in (frames.GOAWAY, frames.RST_STREAM):
            raise ConnectionError(f"the node refuses the traffic: frame {kind} {payload!r}")
        is_end = kind in (frames.DATA, frames.HEADERS) and bool(flags & frames.END_STREAM)
        return (len(payload) if kind == frames.DATA else 0), is_end

    @staticmethod
    def _message(number: int) -> bytes:
        width, request_id = _kinds(number)
        request = pb.ModelInferRequest(model_name="add_sub", id=request_id)
        for index in range(2):
            request.inputs.add(name=f"INPUT{index}", datatype="FP32", shape=[1, width])
            request.raw_input_contents.append(bytes(4 * width))
        raw = request.SerializeToString()
        return b"\0" + frames.U32.pack(len(raw)) + raw


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return frames.HEADER.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


async def _load(port: int, process: psutil.Process, requests: int) -> list[int]:
    """Send the requests and return the node's resident bytes at equal steps, the first after a warm-up."""
    clients = (HttpClient(), GrpcClient())
    for client in clients:
        await client.connect(port)

    async def send(client: HttpClient | GrpcClient, start: int, stop: int) -> None:
        for number in range(start, stop, _BUNCH):
            await client.bunch(range(number, min(number + _BUNCH, stop)))

    half = requests // 2
    steps = [half * index // _SAMPLES for index in range(_SAMPLES + 1)]
    sizes: list[int] = []
    for start, stop in itertools.pairwise(steps):
        await asyncio.gather(*(send(client, start, stop) for client in clients))
        sizes.append(process.memory_info().rss)
    return sizes


def _answered(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/add_sub/stats", timeout=10) as answer:
        return int(json.load(answer)["model_stats"][0]["inference_count"])


def run(options: Options) -> None:
    """Print the growth after the first tenth, and end with status 1 when it is more than noise."""
    requests = min(options.requests, 50_000) if options.quick else options.requests
    port = options.port_base + 20
    with tempfile.TemporaryDirectory() as folder:
        write_ours(Path(folder, "ours"))
        with running(port, node_command(Path(folder, "ours"), port)) as node:
            sizes = asyncio.run(_load(port, psutil.Process(node.pid), requests))
            answered = _answered(port)
    assert answered >= requests * 7 // 8, f"{answered} of {requests} requests were answered with tensors"
    growth = sizes[-1] - sizes[0]
    counted = requests * (_SAMPLES - 1) // _SAMPLES
    print(f"  resident MiB after each tenth: {' '.join(f'{size / _MIB:.1f}' for size in sizes)}")
    print(f"  growth over the last {counted} requests: {growth / _MIB:.2f} MiB, {growth / counted:.2f} bytes a request")
    # an allocator gives pages back late: a short run says little
    if growth > max(_LIMIT_BYTES_PER_REQUEST * counted, 4 * _MIB):
        sys.exit("  the node's memory grows")
