"""How fast the wire is: our HTTP and gRPC frontends over an echo, against Triton with an identity model.

Ours has no model behind it, so the ratios are an upper bound for a served model.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.models import config, write_theirs
from benchmarks.options import Options
from benchmarks.peers import compare, running
from serving_node.contract.model_config import parse_pbtxt
from serving_node.contract.proto import grpc_service_pb2
from serving_node.core.metadata import ModelMetadata, OutputClasses, ServerMetadata, TensorMetadata
from serving_node.core.request import InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.frontends.grpc import GrpcFrontend
from serving_node.frontends.http import HttpFrontend

MODEL = "echo"


class EchoDataPlane:
    """Answers each request at once with its inputs."""

    tracing = None

    def __init__(self) -> None:
        self._config = parse_pbtxt(config(MODEL, "python"))
        self._count = 0

    def infer(self, request: Any) -> None:
        self._count += 1
        outputs = [
            Tensor("OUTPUT" + tensor.name[5:], tensor.datatype, tensor.shape, tensor.data) for tensor in request.inputs
        ]
        request.on_response(InferenceResponse(MODEL, "1", request.id, outputs))

    def server_live(self) -> bool:
        return True

    server_ready = server_live

    def model_ready(self, name: str, version: str) -> bool:
        return name == MODEL

    def server_metadata(self) -> Any:
        return ServerMetadata("triton", "0", ("statistics", "binary_tensor_data"))

    def model_metadata(self, name: str, version: str) -> Any:
        shape = (-1, 16)
        inputs = tuple(TensorMetadata(f"INPUT{i}", "FP32", shape) for i in range(2))
        outputs = tuple(TensorMetadata(f"OUTPUT{i}", "FP32", shape) for i in range(2))
        return ModelMetadata(MODEL, ("1",), "python", inputs, outputs)

    def output_classes(self, name: str, version: str) -> OutputClasses:
        return OutputClasses(has_rows=True)

    def model_config(self, name: str, version: str) -> Any:
        return self._config

    def statistics(self, name: str, version: str) -> list[Any]:
        # perf_analyzer finds out by these which version was served
        statistics = grpc_service_pb2.ModelStatistics(
            name=MODEL, version="1", inference_count=self._count, execution_count=self._count
        )
        statistics.inference_stats.success.count = statistics.inference_stats.queue.count = self._count
        return [statistics]


async def _serve(http_port: int, grpc_port: int) -> None:
    dataplane: Any = EchoDataPlane()
    http, grpc = HttpFrontend(dataplane), GrpcFrontend(dataplane)
    await http.serve("127.0.0.1", http_port)
    await grpc.serve("127.0.0.1", grpc_port)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await http.stop(1)
    await grpc.stop(1)


def run(options: Options) -> None:
    """Print one line per protocol and concurrency: A is Triton, B is our frontends."""
    assert options.oracle is not None
    theirs, ours = options.port_base, options.port_base + 10
    with tempfile.TemporaryDirectory() as folder:
        write_theirs(Path(folder))
        triton = [options.oracle / "triton.sh", Path(folder), str(theirs)]
        echo = [sys.executable, "-m", "benchmarks.wire", str(ours)]
        with running(theirs, triton) as a, running(ours, echo) as b:
            compare(options, (a.pid, theirs), (b.pid, ours), [MODEL])


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[1]) + 1))
