"""How fast the wire is: our HTTP and gRPC frontends over an echo, against Triton with an identity model.

    python benchmarks/wire.py --oracle FOLDER [-i grpc http] [-c 1 16 64] [--elements 16]

FOLDER holds ``triton.sh`` (starts the reference server) and ``compare.py`` (perf_analyzer on both in turn). Ours has
no engine behind it, so the ratios are an upper bound for a served model. Ratios are the result; absolute rates are
only there to see that both sides were loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

MODEL = "echo"
_CONFIG = """
name: "echo"
backend: "python"
max_batch_size: 64
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {elements} ] }},
        {{ name: "INPUT1" data_type: TYPE_FP32 dims: [ {elements} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {elements} ] }},
         {{ name: "OUTPUT1" data_type: TYPE_FP32 dims: [ {elements} ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ }}
"""
_MODEL_PY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            outputs = [
                pb_utils.Tensor(f"OUTPUT{i}", pb_utils.get_input_tensor_by_name(request, f"INPUT{i}").as_numpy())
                for i in range(2)
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses
"""


class EchoDataPlane:
    """Answers each request at once with its inputs."""

    def __init__(self, elements: int) -> None:
        from serving_node.contract.model_config import parse_pbtxt

        self._config = parse_pbtxt(_CONFIG.format(elements=elements))
        self._elements = elements
        self._count = 0

    def infer(self, request: Any) -> None:
        from serving_node.core.request import InferenceResponse
        from serving_node.core.tensor import Tensor

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
        from serving_node.core.metadata import ServerMetadata

        return ServerMetadata("triton", "0", ("statistics", "binary_tensor_data"))

    def model_metadata(self, name: str, version: str) -> Any:
        from serving_node.core.metadata import ModelMetadata, TensorMetadata

        shape = (-1, self._elements)
        inputs = tuple(TensorMetadata(f"INPUT{i}", "FP32", shape) for i in range(2))
        outputs = tuple(TensorMetadata(f"OUTPUT{i}", "FP32", shape) for i in range(2))
        return ModelMetadata(MODEL, ("1",), "python", inputs, outputs)

    def model_config(self, name: str, version: str) -> Any:
        return self._config

    def statistics(self, name: str, version: str) -> list[Any]:
        from serving_node.contract.proto import grpc_service_pb2

        # perf_analyzer finds out by these which version was served
        statistics = grpc_service_pb2.ModelStatistics(
            name=MODEL, version="1", inference_count=self._count, execution_count=self._count
        )
        statistics.inference_stats.success.count = statistics.inference_stats.queue.count = self._count
        return [statistics]


async def _serve(http_port: int, grpc_port: int, elements: int) -> None:
    from serving_node.frontends.grpc import GrpcFrontend
    from serving_node.frontends.http import HttpFrontend

    dataplane: Any = EchoDataPlane(elements)
    http, grpc = HttpFrontend(dataplane), GrpcFrontend(dataplane)
    await http.serve("127.0.0.1", http_port)
    await grpc.serve("127.0.0.1", grpc_port)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await http.stop(1)
    await grpc.stop(1)


def _wait_ready(port: int, process: subprocess.Popen[bytes], deadline_seconds: float = 60) -> None:
    end = time.monotonic() + deadline_seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            sys.exit(f"the server for port {port} ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit(f"the server on port {port} is not ready after {deadline_seconds} s")


def _compare(args: argparse.Namespace, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as repository:
        version = Path(repository, MODEL, "1")
        version.mkdir(parents=True)
        (version / "model.py").write_text(_MODEL_PY)
        Path(repository, MODEL, "config.pbtxt").write_text(_CONFIG.format(elements=args.elements))
        base = args.port_base
        log = Path(repository, "triton.log").open("wb")  # noqa: SIM115
        ours_command = [sys.executable, __file__, "--serve", "--port-base", str(base), "--elements", str(args.elements)]
        servers = [
            subprocess.Popen([folder / "triton.sh", repository, str(base)], stdout=log, stderr=log),
            subprocess.Popen(ours_command),
        ]
        try:
            _wait_ready(base, servers[0])
            _wait_ready(base + 10, servers[1])
            for protocol in args.protocol:
                offset = 1 if protocol == "grpc" else 0
                command = [sys.executable, folder / "compare.py", "--a", f"127.0.0.1:{base + offset}"]
                command += ["--b", f"127.0.0.1:{base + 10 + offset}", "-m", MODEL, "-i", protocol]
                command += ["--rounds", str(args.rounds), "-c", *map(str, args.concurrency)]
                subprocess.run([*command, "--", "-s", "900"], check=False)  # on a shared machine few windows are stable
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait(30)
            log.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, help="folder with triton.sh and compare.py")
    parser.add_argument("-i", "--protocol", nargs="+", choices=["grpc", "http"], default=["grpc", "http"])
    parser.add_argument("-c", "--concurrency", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--elements", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port-base", type=int, default=21000)
    parser.add_argument("--serve", action="store_true", help="only run our server, on port base + 10 and + 11")
    args = parser.parse_args()
    if args.serve:
        import uvloop

        uvloop.run(_serve(args.port_base + 10, args.port_base + 11, args.elements))
        return
    if args.oracle is None or not (args.oracle / "triton.sh").exists():
        sys.exit("no reference server: pass --oracle FOLDER (it must hold triton.sh and compare.py)")
    _compare(args, args.oracle)


if __name__ == "__main__":
    main()
