"""What serving costs on top of the engine, as ratios measured in one run.

Served: requests of one row through the dataplane, no network, in a closed loop of so many requests.
Raw: ONNX Runtime called in a loop on one prepared array, at the batch size where it gives the most rows per second,
with the session settings that the node uses. Both alternate, so that a noisy machine disturbs both.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import structlog
import uvloop

from benchmarks.models import MAX_BATCH, MLP_SIZES, save_mlp
from benchmarks.options import Options
from serving_node.backends.loader import Backends
from serving_node.backends.onnxruntime.backend import _session_options
from serving_node.backends.onnxruntime.settings import SessionSettings
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.metadata import IndexEntry
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.core.threads import default_threads
from serving_node.dataplane import DataPlane
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel


class OneModel:
    """A repository of one model."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model

    def resolve(self, name: str, version: str, request: InferenceRequest | None) -> ServedModel:
        return self._model

    def sole(self, name: str, version: str) -> ServedModel | None:
        return self._model

    def models(self) -> list[ServedModel]:
        return [self._model]

    def ready(self) -> bool:
        return True

    def index(self) -> list[IndexEntry]:
        return []

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None: ...

    async def unload(self, name: str, unload_dependents: bool) -> None: ...


def raw_rows_per_second(session: ort.InferenceSession, data: np.ndarray, seconds: float) -> float:
    end, runs = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        session.run(["y"], {"x": data})
        runs += 1
    return runs * len(data) / (time.perf_counter() - end + seconds)


def best_batch(session: ort.InferenceSession, features: int) -> int:
    def speed(rows: int) -> float:
        return raw_rows_per_second(session, np.zeros((rows, features), np.float32), 0.15)

    sizes = [2**power for power in range(MAX_BATCH.bit_length())]
    return max(sizes, key=lambda rows: max(speed(rows), speed(rows)))


async def served_rows_per_second(dataplane: DataPlane, features: int, concurrency: int, seconds: float) -> float:
    """Keep ``concurrency`` requests in flight; each answer sends the next request, as a connection would."""
    data = np.zeros((1, features), np.float32).tobytes()
    finished = asyncio.Event()
    answered = 0
    open_requests = concurrency
    end = time.perf_counter() + seconds

    def send() -> None:
        dataplane.infer(InferenceRequest("m", "", [Tensor("x", "FP32", (1, features), data)], on_response))

    def on_response(response: InferenceResponse) -> None:
        nonlocal answered, open_requests
        assert response.error is None, response.error
        answered += 1
        if time.perf_counter() < end:
            loop.call_soon(send)
            return
        open_requests -= 1
        if not open_requests:
            finished.set()

    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    for _ in range(concurrency):
        send()
    await finished.wait()
    return answered / (time.perf_counter() - begin)


async def compare(label: str, sizes: tuple[int, ...], concurrency: int, seconds: float, instances: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1" / "model.onnx"
        save_mlp(path, sizes)
        options = _session_options(SessionSettings(intra_op_threads=default_threads(instances)))
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        config = (
            f'backend: "onnxruntime" max_batch_size: {MAX_BATCH} dynamic_batching {{ }}'
            f" instance_group {{ kind: KIND_CPU count: {instances} }}"
        )
        model = await load_served_model(
            name="m", version=1, version_dir=path.parent, config=parse_pbtxt(config), backends=Backends()
        )
        dataplane = DataPlane(OneModel(model))
        rows = best_batch(session, sizes[0])
        data = np.zeros((rows, sizes[0]), np.float32)
        raw: list[float] = []
        served: list[float] = []
        for _ in range(3):
            raw.append(raw_rows_per_second(session, data, seconds / 3))
            served.append(await served_rows_per_second(dataplane, sizes[0], concurrency, seconds / 3))
        statistics = model.statistics
        mean = statistics.inference_count / statistics.execution_count
        print(
            f"  {label}: concurrency {concurrency}, {instances} instance(s): served/raw {max(served) / max(raw):.2f}"
            f"  (served {max(served):.0f}/s, raw {max(raw):.0f}/s at batch {rows}; mean served batch {mean:.1f})"
        )
        await model.close()


async def _measure(options: Options) -> None:
    seconds, concurrencies = (0.5, (64,)) if options.quick else (2.0, (16, 64, 128))
    for concurrency in concurrencies:
        for label, sizes in (("mlp 512-1024x3-10", MLP_SIZES), ("tiny 16-16", (16, 16))):
            for instances in (1,) if options.quick else (1, 2):
                await compare(label, sizes, concurrency, seconds, instances)


def run(options: Options) -> None:
    """Print one line per concurrency, model and number of instances."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    uvloop.run(_measure(options))
