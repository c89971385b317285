"""Real node processes and a small control plane for them, on loopback."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from onnx import TensorProto, helper

from serving_node.contract.control import Desired, DesiredModel, FileRef, Observed, Route, Unit
from serving_node.contract.digests import config_digest, manifest_digest
from serving_node.contract.model_config import parse_json
from tests.ports import held_port

T = TypeVar("T")


def doubling_model(factor: float = 2.0) -> bytes:
    """Return an ONNX file: y = factor * x, FP32 [batch, 4]."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "doubling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor("factor", TensorProto.FLOAT, [], [factor])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def eventually(look: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
    """Return the first true answer of ``look``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class NodeProcess:
    """One ``python -m serving_node`` with fixed ports."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.http, self.grpc, self.metrics, self.admin = (held_port() for _ in range(4))
        self.log = log
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> NodeProcess:
        ports = []
        for name in ("http", "grpc", "metrics", "admin"):
            ports += [f"--{name}-address=127.0.0.1", f"--{name}-port={getattr(self, name)}"]
        command = [sys.executable, "-m", "serving_node", *ports, *self.arguments]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        return self

    def wait(self, seconds: float = 120.0) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def answers(self, path: str = "/v2/health/ready") -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the node ended with {self.process.returncode}:\n{self.said()}")
        try:
            return (
                httpx2.get(f"http://127.0.0.1:{self.http}{path}", verify=False, trust_env=False, timeout=30).status_code
                == 200
            )
        except httpx2.TransportError:
            return False

    def until_ready(self) -> NodeProcess:
        eventually(self.answers, "the node is ready")
        return self


@dataclass
class ControlPlane:
    """Takes nodes in and hands out blobs. ``hold_after`` bytes of a blob it stops until ``released``."""

    url: str = ""
    joins: list[dict[str, Any]] = field(default_factory=list)
    hellos: list[tuple[str | None, dict[str, Any]]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    ranges: list[str | None] = field(default_factory=list)
    refuse_join: int = 0
    hold_after: int = 0
    holding: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def start(self, port: int = 0) -> ControlPlane:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (_Handler,), {"plane": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def stop(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def unit(self, number: int, content: bytes, *, path: str = "model.onnx", **config: Any) -> Unit:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        files = (FileRef(path, digest, len(content)),)
        document = {"backend": "onnxruntime", **config}
        return Unit(f"u{number}", number, config_digest(parse_json(document)), document, manifest_digest(files), files)

    # what a worker does

    def put(self, node: NodeProcess, desired: Desired) -> Observed:
        answer = self._call(node, "PUT", "/v1/desired", json=desired.to_json())
        assert answer.status_code == 200, answer.text
        return Observed.from_json(answer.json())

    def until_applied(self, node: NodeProcess, generation: int) -> Observed:
        observed = Observed.from_json(self._call(node, "GET", "/v1/observed").json())
        deadline = time.monotonic() + 120
        while observed.generation_applied != generation:
            assert time.monotonic() < deadline, f"{observed}\n{node.said()}"
            query = f"/v1/observed?after={observed.sequence}&timeout=5"
            observed = Observed.from_json(self._call(node, "GET", query).json())
        return observed

    def _call(self, node: NodeProcess, method: str, path: str, **more: Any) -> httpx2.Response:
        secret = (self.hellos[-1][1] if self.hellos else self.joins[-1])["admin_secret"]
        headers = {"Authorization": f"Bearer {secret}"}
        url = f"http://127.0.0.1:{node.admin}{path}"
        return httpx2.request(method, url, headers=headers, timeout=60, verify=False, trust_env=False, **more)


class _Handler(BaseHTTPRequestHandler):
    plane: ControlPlane

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        plane = self.plane
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/v1/nodes/join/":
            if plane.refuse_join:
                self._answer(plane.refuse_join, {"detail": "the join token has expired"})
                return
            plane.joins.append(body)
            self._answer(201, {"node": "node-7", "node_token": "t0ken", "epoch": 1})
        else:
            plane.hellos.append((self.headers.get("Authorization"), body))
            self._answer(200, {})

    def do_GET(self) -> None:
        plane = self.plane
        content = plane.blobs.get(self.path.rsplit("/", 1)[-1])
        if self.headers.get("Authorization") != "Bearer t0ken" or content is None:
            self._answer(404, {})
            return
        plane.ranges.append(self.headers.get("Range"))
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if plane.hold_after and not start:
            self.wfile.write(content[: plane.hold_after])
            self.wfile.flush()
            plane.holding.set()
            plane.released.wait(60)
            self.close_connection = True
            return
        self.wfile.write(content[start:])

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def desired(generation: int, *units: Unit, weights: tuple[int, ...] = ()) -> Desired:
    """Return the desired state of one model 'm' over these units."""
    weights = weights or (100,) * len(units)
    routes = tuple(Route(unit.unit, weight) for unit, weight in zip(units, weights, strict=True))
    return Desired(1, generation, (DesiredModel("m", routes, units),))


__all__ = ["ControlPlane", "NodeProcess", "desired", "doubling_model", "eventually"]
