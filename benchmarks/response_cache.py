"""What the response cache saves and costs: the same model with and without it, in turn, in one run.

Requests of one row go through the dataplane, no network, in a closed loop. Hits: all are equal, and answered from
memory. Misses: all differ, so that each is hashed, looked up, run and kept for nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import structlog
import uvloop

from benchmarks.engine import OneModel
from benchmarks.models import MAX_BATCH, MLP_SIZES, save_mlp
from benchmarks.options import Options
from serving_node.backends.loader import Backends
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.dataplane import DataPlane
from serving_node.scheduling.cache_scope import ResponseCaching
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.response_cache import LocalCache

_CONFIG = 'backend: "onnxruntime" max_batch_size: {} dynamic_batching {{ }} response_cache {{ enable: true }}'
_CAPACITY = 64 * 1024 * 1024
_ROUNDS = 3


def _equal(features: int) -> Iterator[bytes]:
    return itertools.repeat(np.ones((1, features), np.float32).tobytes())


def _different(features: int) -> Iterator[bytes]:
    data = np.zeros((1, features), np.float32)
    for number in itertools.count():
        data[0, 0], data[0, 1] = number % 1000, number // 1000
        yield data.tobytes()


async def _per_second(
    dataplane: DataPlane, inputs: Iterator[bytes], features: int, concurrency: int, seconds: float
) -> float:
    """Keep ``concurrency`` requests in flight; each answer sends the next request, as a connection would."""
    finished = asyncio.Event()
    answered, open_requests = 0, concurrency
    end = time.perf_counter() + seconds

    def send() -> None:
        dataplane.infer(InferenceRequest("m", "", [Tensor("x", "FP32", (1, features), next(inputs))], on_response))

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


async def _compare(label: str, sizes: tuple[int, ...], concurrency: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1" / "model.onnx"
        save_mlp(path, sizes)
        model = await load_served_model(
            name="m",
            version=1,
            version_dir=path.parent,
            config=parse_pbtxt(_CONFIG.format(MAX_BATCH)),
            backends=Backends(),
        )
        dataplane = DataPlane(OneModel(model))
        plain = model.scheduler
        cache = LocalCache(_CAPACITY)
        await ResponseCaching(cache, lambda name, version: None).attach(model, path.parent)
        cached = model.scheduler
        new = _different(sizes[0])
        rates: dict[str, list[float]] = {"run": [], "hits": [], "misses": []}
        for _ in range(_ROUNDS):
            for name, scheduler, inputs in (
                ("run", plain, new),
                ("hits", cached, _equal(sizes[0])),
                ("misses", cached, new),
            ):
                model.scheduler = scheduler
                rates[name].append(await _per_second(dataplane, inputs, sizes[0], concurrency, seconds / _ROUNDS))
        best = {name: max(found) for name, found in rates.items()}
        print(
            f"  {label}: concurrency {concurrency}: hits/run {best['hits'] / best['run']:.2f},"
            f" misses/run {best['misses'] / best['run']:.2f}"
            f"  (run {best['run']:.0f}/s, hits {best['hits']:.0f}/s, misses {best['misses']:.0f}/s)"
        )
        model.scheduler = cached
        await model.close()
        await cache.close()


async def _measure(options: Options) -> None:
    seconds, concurrencies = (1.0, (16,)) if options.quick else (6.0, (1, 16, 64))
    for concurrency in concurrencies:
        for label, sizes in (("mlp 512-1024x3-10", MLP_SIZES), ("tiny 16-16", (16, 16))):
            await _compare(label, sizes, concurrency, seconds)


def run(options: Options) -> None:
    """Print one line per concurrency and model."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    uvloop.run(_measure(options))
