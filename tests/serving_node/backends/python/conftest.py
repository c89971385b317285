"""Python models in real worker processes, without a server around them."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from serving_node.backends.loader import Backends
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.scheduling.host_policies import HostPolicies
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel

DEADLINE = 60.0

_CONFIG = """
backend: "python"
input [ {{ name: "IN" data_type: {datatype} dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: {datatype} dims: [ -1 ] }} ]
{extra}
"""
_PREFIX = "import os, sys, threading, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\n"


class Asked:
    """A request and what was answered."""

    def __init__(self, model: ServedModel, tensor: Tensor, identity: str, outputs: list[str]) -> None:
        self.responses: list[InferenceResponse] = []
        self._changed = asyncio.Event()
        self.request = InferenceRequest(model.name, "", [tensor], self._answered, identity)
        self.request.outputs = [RequestedOutput(name) for name in outputs]

    def _answered(self, response: InferenceResponse) -> None:
        self.responses.append(response)
        self._changed.set()

    async def count(self, count: int) -> list[InferenceResponse]:
        async with asyncio.timeout(DEADLINE):
            while len(self.responses) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.responses

    async def answer(self) -> InferenceResponse:
        async with asyncio.timeout(DEADLINE):
            while not self.responses or not self.responses[-1].final:
                self._changed.clear()
                await self._changed.wait()
        return self.responses[-1]

    async def error(self) -> str:
        error = (await self.answer()).error
        assert error is not None, "it succeeded"
        return error.message

    async def array(self) -> npt.NDArray[Any]:
        answer = await self.answer()
        assert answer.error is None, answer.error
        return answer.outputs[0].as_numpy()


class Models:
    """Loads models from source texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loaded: list[ServedModel] = []
        self.backends = Backends({"python": {"stub-timeout-seconds": "30"}})

    def write(self, body: str, name: str = "m") -> Path:
        version = self.folder / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        text = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        (version / "model.py").write_text(f"{_PREFIX}class TritonPythonModel:\n{text}\n")
        return version

    async def load(
        self,
        body: str,
        extra: str = "",
        *,
        name: str = "m",
        datatype: str = "TYPE_FP32",
        config: str = "",
        hosts: HostPolicies | None = None,
    ) -> ServedModel:
        text = config or _CONFIG.format(datatype=datatype, extra=extra)
        model = await load_served_model(
            name=name,
            version=1,
            version_dir=self.write(body, name),
            config=parse_pbtxt(text),
            backends=self.backends,
            hosts=hosts,
        )
        self.loaded.append(model)
        return model

    def ask(
        self, model: ServedModel, values: Any, *, dtype: str = "FP32", identity: str = "", outputs: tuple[str, ...] = ()
    ) -> Asked:
        asked = self.make(model, values, dtype=dtype, identity=identity, outputs=outputs)
        model.submit(asked.request)
        return asked

    def make(
        self, model: ServedModel, values: Any, *, dtype: str = "FP32", identity: str = "", outputs: tuple[str, ...] = ()
    ) -> Asked:
        """Return a request that is checked and not yet submitted."""
        kinds = {"FP32": np.float32, "BYTES": np.object_, "INT64": np.int64}
        tensor = Tensor.from_numpy("IN", np.asarray(values, kinds[dtype]), dtype)
        asked = Asked(model, tensor, identity, list(outputs))
        asked.request.arrival_ns = 1
        model.rules.check(asked.request)
        return asked


@pytest.fixture
async def models(tmp_path: Path) -> AsyncIterator[Models]:
    made = Models(tmp_path)
    yield made
    for model in made.loaded:
        await model.close(5)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Any]:
    """Return a function that waits until something is true."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.01)

    return wait
