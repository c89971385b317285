"""What a whole node makes of its engine: rows a second through it, over the raw loop of the engine.

Served: a node in a process of its own and an HTTP client in another, both on the cores of this machine. Raw: ONNX
Runtime in this process at its best batch, with the threads that the node gives it. Both alternate; the ratio is that of
the medians. Processor time is that of the node's process for each request, beside what the raw loop takes for as many
rows.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks.cpu import CpuMeter
from benchmarks.engine import best_batch, raw_rows_per_second
from benchmarks.models import MAX_BATCH, save_mlp
from benchmarks.options import Options
from benchmarks.peers import node_command, running
from serving_node.backends.onnxruntime.backend import _session_options
from serving_node.backends.onnxruntime.settings import SessionSettings
from serving_node.core.threads import default_threads

FEATURES, OUTPUTS = 256, 16
# name -> milliseconds of a batch, share of the raw loop that the project holds itself to
TARGETS = {"slow": (20.0, 0.85), "fast": (1.0, 0.6)}
_CONFIG = """
backend: "onnxruntime" max_batch_size: {batch} dynamic_batching {{ }}
instance_group {{ kind: KIND_CPU count: 1 }}
"""


@dataclass
class _Raw:
    """The engine alone: ``batch`` is where it gives the most rows a second, in ``milliseconds`` for each."""

    session: ort.InferenceSession
    batch: int
    milliseconds: float

    def measure(self, seconds: float) -> tuple[float, float]:
        """Return rows a second, and processor microseconds for a row."""
        data = np.zeros((self.batch, FEATURES), np.float32)
        processor = time.process_time()
        begin = time.perf_counter()
        rows = raw_rows_per_second(self.session, data, seconds)
        spent = time.perf_counter() - begin
        return rows, (time.process_time() - processor) * 1e6 / (rows * spent)


def _session(path: Path) -> ort.InferenceSession:
    options = _session_options(SessionSettings(intra_op_threads=default_threads(1)))
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _sized(path: Path, milliseconds: float) -> _Raw:
    """Write a network that takes about so long for its best batch on this machine."""
    hidden = 512
    for _ in range(4):
        save_mlp(path, (FEATURES, hidden, hidden, hidden, OUTPUTS))
        session = _session(path)
        batch = best_batch(session, FEATURES)
        rows = raw_rows_per_second(session, np.zeros((batch, FEATURES), np.float32), 0.4)
        raw = _Raw(session, batch, batch / rows * 1e3)
        if abs(raw.milliseconds / milliseconds - 1) < 0.1:
            break
        hidden = max(64, round(hidden * (milliseconds / raw.milliseconds) ** 0.5 / 32) * 32)
    return raw


def _request(folder: Path, name: str, rows: int) -> tuple[Path, int]:
    """Write a request with its tensor behind the JSON; return the file and the length of the JSON."""
    head = {
        "inputs": [
            {
                "name": "x",
                "shape": [rows, FEATURES],
                "datatype": "FP32",
                "parameters": {"binary_data_size": rows * FEATURES * 4},
            }
        ],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(head).encode()
    path = folder / f"{name}-{rows}"
    path.write_bytes(text + np.zeros((rows, FEATURES), np.float32).tobytes())
    return path, len(text)


def _served_rows(port: int, name: str, body: tuple[Path, int], rows: int, connections: int, seconds: float) -> float:
    file, header_bytes = body
    command = [sys.executable, "-m", "benchmarks.http_load", str(port), f"/v2/models/{name}/infer"]
    command += ["--header-bytes", str(header_bytes), "--body", str(file)]
    command += ["--connections", str(connections), "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60)
    result = json.loads(done.stdout)
    return float(result["answers"] * rows / result["seconds"])


def _compare(options: Options, folder: Path, name: str, raw: _Raw, port: int, pid: int, rows: int) -> None:
    rounds, seconds = (3, 1.0) if options.quick else (max(5, options.rounds), 4.0)
    # two batches on their way: one runs while the next is received
    connections = 2 * raw.batch // rows
    body = _request(folder, name, rows)
    _served_rows(port, name, body, rows, connections, 0.5)
    raws: list[float] = []
    serveds: list[float] = []
    engine_us: list[float] = []
    server_us: list[float] = []
    for _ in range(rounds):
        rate, processor = raw.measure(seconds)
        raws.append(rate)
        engine_us.append(processor * rows)
        meter = CpuMeter(pid, port, name)
        serveds.append(_served_rows(port, name, body, rows, connections, seconds))
        server_us.append(meter.microseconds_per_request())
    ratio = statistics.median(serveds) / statistics.median(raws)
    print(
        f"  {name}, {raw.milliseconds:.1f} ms for its best batch of {raw.batch}, requests of {rows} rows on"
        f" {connections} connections: served/raw {ratio:.2f}, target {TARGETS[name][1]}"
        f"  (served {statistics.median(serveds):.0f} rows/s, raw {statistics.median(raws):.0f} rows/s; processor time"
        f" for each request: server {statistics.median(server_us):.0f} us, the engine alone"
        f" {statistics.median(engine_us):.0f} us)",
        flush=True,
    )


def run(options: Options) -> None:
    """Print one line for each model, with requests of a whole batch and of a quarter of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models: dict[str, _Raw] = {}
        for model, (milliseconds, _) in TARGETS.items():
            path = folder / "models" / model / "1" / "model.onnx"
            models[model] = _sized(path, milliseconds)
            (path.parents[1] / "config.pbtxt").write_text(_CONFIG.format(batch=MAX_BATCH))
        port = options.port_base
        with running(port, node_command(folder / "models", port)) as node:
            for model, raw in models.items():
                for rows in sorted({raw.batch, max(1, raw.batch // 4)}, reverse=True):
                    _compare(options, folder, model, raw, port, node.pid, rows)
