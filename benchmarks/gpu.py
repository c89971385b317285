"""Engines on a GPU: rows a second by batch size, served through a node's dataplane over the engine's own loop.

Raw: the engine called in a loop on one prepared batch that starts and ends in the host's memory, as requests do.
Served: as many requests of one row in flight as a batch has rows, no network, two instances. Both alternate.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import structlog
import uvloop

from benchmarks.engine import OneModel, served_rows_per_second
from benchmarks.models import save_mlp
from benchmarks.options import Options
from serving_node.backends.loader import Backends
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.backend import Device, DeviceKind, ModelSource
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from serving_node.dataplane import DataPlane
from serving_node.observability.host import GpuProbe
from serving_node.scheduling.model_loader import load_served_model

SIZES = (1024, 4096, 4096, 1000)
BATCHES = (1, 8, 32, 128)
_PLACE = "max_batch_size: {rows} dynamic_batching {{ }} instance_group {{ kind: KIND_GPU count: 2 gpus: [0] }}"

Loop = Callable[[np.ndarray], Any]


class Engine(Protocol):
    """One engine. ``config`` lacks batches and instances."""

    name: str
    config: str

    def lacks(self) -> str:
        """Return what is missing on this machine, empty when nothing is."""

    def save(self, folder: Path) -> None:
        """Write the model into a version folder."""

    def loop(self, folder: Path) -> Loop:
        """Return the engine's own call on a batch."""


class OnnxCuda:
    name = "ONNX Runtime, CUDA"
    config = 'backend: "onnxruntime"'

    def lacks(self) -> str:
        import onnxruntime

        has = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        return "" if has else "this onnxruntime has no CUDA provider"

    def save(self, folder: Path) -> None:
        save_mlp(folder / "model.onnx", SIZES)

    def loop(self, folder: Path) -> Loop:
        import onnxruntime

        providers = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=providers)
        return lambda data: session.run(None, {"x": data})


class PyTorch:
    name = "PyTorch"
    config = 'backend: "pytorch" default_model_filename: "model.pt2"'

    def lacks(self) -> str:
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        import torch

        return "" if torch.cuda.is_available() else "this torch sees no GPU"

    def save(self, folder: Path) -> None:
        import torch

        program = torch.export.export(
            self._network(), (torch.zeros(2, SIZES[0]),), dynamic_shapes=({0: torch.export.Dim("rows", max=4096)},)
        )
        folder.mkdir(parents=True, exist_ok=True)
        torch.export.save(program, folder / "model.pt2")

    def loop(self, folder: Path) -> Loop:
        import torch

        network = self._network().to("cuda")

        def run(data: np.ndarray) -> Any:
            with torch.inference_mode():
                return network(torch.from_numpy(data).to("cuda")).cpu()

        return run

    def _network(self) -> Any:
        import torch

        class Network(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                pairs = itertools.pairwise(SIZES)
                self.layers = torch.nn.ModuleList(torch.nn.Linear(rows, columns) for rows, columns in pairs)

            def forward(self, x: Any) -> Any:
                for layer in self.layers[:-1]:
                    x = torch.relu(layer(x))
                return self.layers[-1](x)

        return Network().eval()


class TensorRt:
    name = "TensorRT"
    config = 'backend: "tensorrt" optimization { cuda { graphs: true } }'

    def lacks(self) -> str:
        return "" if importlib.util.find_spec("tensorrt") is not None else "tensorrt is not installed"

    def save(self, folder: Path) -> None:
        from serving_node.cli.build_engine import main

        save_mlp(folder / "model.onnx", SIZES)
        arguments = ["--output", str(folder / "model.plan"), "--max-batch-size", str(BATCHES[-1])]
        if main([str(folder / "model.onnx"), *arguments]):
            raise RuntimeError("the engine cannot be built")

    def loop(self, folder: Path) -> Loop:
        device = Device(DeviceKind.GPU, 0)
        config = parse_pbtxt(
            f'name: "m" {self.config} max_batch_size: {BATCHES[-1]} instance_group {{ name: "m" kind: KIND_GPU }}'
            ' input { name: "x" dims: [-1] } output { name: "y" dims: [-1] }'
        )
        model = Backends().get("tensorrt").open_model(ModelSource("m", 1, folder, config, (device,)))
        instance = model.create_instance(device, config, "m_0")

        def run(data: np.ndarray) -> Any:
            request = InferenceRequest("m", "", [Tensor.from_numpy("x", data, "FP32")], lambda _: None)
            request.batch_size = len(data)
            instance.execute(Execution([request], len(data)))

        return run


ENGINES: tuple[Engine, ...] = (OnnxCuda(), PyTorch(), TensorRt())


def raw_rows_per_second(loop: Loop, data: np.ndarray, seconds: float) -> float:
    begin, runs = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        loop(data)
        runs += 1
    return runs * len(data) / (time.perf_counter() - begin)


async def compare(engine: Engine, folder: Path, loop: Loop, rows: int, seconds: float) -> None:
    config = parse_pbtxt(f"{engine.config} {_PLACE.format(rows=rows)}")
    model = await load_served_model(
        name="m", version=1, version_dir=folder, config=config, backends=Backends(), gpu_count=1
    )
    dataplane = DataPlane(OneModel(model))
    data = np.random.default_rng(0).standard_normal((rows, SIZES[0])).astype(np.float32)
    raw_rows_per_second(loop, data, seconds / 10)  # its first calls choose kernels
    raw: list[float] = []
    served: list[float] = []
    for _ in range(3):
        raw.append(raw_rows_per_second(loop, data, seconds / 3))
        served.append(await served_rows_per_second(dataplane, SIZES[0], max(2 * rows, 1), seconds / 3))
    print(
        f"  {engine.name}, batch {rows}: served/raw {max(served) / max(raw):.2f}"
        f"  (served {max(served):.0f} rows/s, raw {max(raw):.0f} rows/s)",
        flush=True,
    )
    await model.close()


async def _measure(options: Options) -> None:
    seconds, batches = (0.5, (8,)) if options.quick else (3.0, BATCHES)
    for engine in ENGINES:
        missing = engine.lacks()
        if missing:
            print(f"  {engine.name}: not run: {missing}")
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "1"
            engine.save(folder)  # nothing else runs on this loop yet
            loop = engine.loop(folder)
            for rows in batches:
                await compare(engine, folder, loop, rows, seconds)


def run(options: Options) -> None:
    """Print one line per engine and batch size, or why an engine did not run."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    readings = GpuProbe().read()
    if not readings:
        print("  not run: there is no NVIDIA GPU, or no driver for it")
        return
    print(f"  on {readings[0].name}; {' -> '.join(map(str, SIZES))}, FP32")
    uvloop.run(_measure(options))
