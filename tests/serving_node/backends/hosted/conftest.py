"""Backends in real worker processes, without a server around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from serving_node.backends.loader import Backends
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel

DEADLINE = 60.0

IDENTITY = """
backend: "identity" max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
parameters { key: "flotilla.host" value { string_value: "process" } }
"""


class Asked:
    """A request and what was answered."""

    def __init__(self, tensor: Tensor, more: dict[str, Any]) -> None:
        self.responses: list[InferenceResponse] = []
        self._done = asyncio.Event()
        self.request = InferenceRequest("m", "", [tensor], self._answered, **more)
        self.request.arrival_ns = 1

    def _answered(self, response: InferenceResponse) -> None:
        self.responses.append(response)
        self._done.set()

    async def answer(self) -> InferenceResponse:
        async with asyncio.timeout(DEADLINE):
            await self._done.wait()
        return self.responses[0]

    async def array(self) -> npt.NDArray[Any]:
        answer = await self.answer()
        assert answer.error is None, answer.error
        return answer.outputs[0].as_numpy()

    async def error(self) -> InferenceError:
        error = (await self.answer()).error
        assert error is not None, "it succeeded"
        return error


class Models:
    """Loads models with the backends of this node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backends = Backends()
        self.loaded: list[ServedModel] = []

    async def load(self, config: str = IDENTITY, *, files: dict[str, bytes] | None = None, **more: Any) -> ServedModel:
        version = self.folder / "m" / "1"
        version.mkdir(parents=True, exist_ok=True)
        for name, content in (files or {}).items():
            (version / name).write_bytes(content)
        model = await load_served_model(
            name="m", version=1, version_dir=version, config=parse_pbtxt(config), backends=self.backends, **more
        )
        self.loaded.append(model)
        return model

    def submit(self, model: ServedModel, array: Any, datatype: str = "FP32", *, name: str = "IN", **more: Any) -> Asked:
        given = array if isinstance(array, np.ndarray) else np.asarray(array, np.float32)
        asked = Asked(Tensor.from_numpy(name, given, datatype), more)
        model.rules.check(asked.request)
        model.submit(asked.request)
        return asked


@pytest.fixture
async def models(tmp_path: Path) -> AsyncIterator[Models]:
    made = Models(tmp_path)
    yield made
    for model in made.loaded:
        await model.close(5)


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lays a package beside the node as an installer would: its module and its entry points."""
    place = tmp_path / "site-packages"
    place.mkdir()
    monkeypatch.syspath_prepend(place)

    def install(name: str, module: str, source: str, *, in_process: bool = False) -> None:
        (place / f"{module}.py").write_text(source)
        folder = place / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        groups = ["flotilla.backends", *(["flotilla.backends.in_process"] if in_process else [])]
        text = "".join(f"[{group}]\n{name} = {module}:backend\n\n" for group in groups)
        (folder / "entry_points.txt").write_text(text)

    return install


@pytest.fixture
def probe(brought: Callable[..., None]) -> None:
    """The backend ``probe`` is installed."""
    brought("probe", "probe_backend", (Path(__file__).parent / "probe_backend.py").read_text())


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Any]:
    """Return a function that waits until something is true."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.01)

    return wait
