"""A PyTorch model loaded in this process, and requests to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import torch

from serving_node.backends.loader import Backends
from serving_node.backends.pytorch.backend import PyTorchBackend
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel

DEADLINE = 60.0


async def load(folder: Path, config: str = "") -> ServedModel:
    """Load a version's folder on threads of this process, which only tests may do."""
    backends = Backends()
    backends.register(PyTorchBackend())
    parsed = parse_pbtxt(f'backend: "pytorch" {config}')
    return await load_served_model(name="m", version=1, version_dir=folder, config=parsed, backends=backends)


async def infer(model: ServedModel, *batches: list[Tensor], outputs: tuple[str, ...] = ()) -> list[InferenceResponse]:
    """Send all requests in one turn of the loop and return their responses in order."""
    responses: dict[str, InferenceResponse] = {}
    done = asyncio.Event()

    def answered(response: InferenceResponse) -> None:
        responses[response.id] = response
        if len(responses) == len(batches):
            done.set()

    for index, inputs in enumerate(batches):
        request = InferenceRequest(model.name, "", inputs, answered, str(index))
        request.outputs = [RequestedOutput(name) for name in outputs]
        model.rules.check(request)
        model.submit(request)
    await asyncio.wait_for(done.wait(), DEADLINE)
    return [responses[str(index)] for index in range(len(batches))]


def arrays(response: InferenceResponse) -> dict[str, np.ndarray]:
    assert response.error is None, response.error
    return {tensor.name: tensor.as_numpy() for tensor in response.outputs}


def failure(response: InferenceResponse) -> tuple[str, str]:
    assert response.error is not None
    return response.error.code.value, response.error.message


def sent(name: str, tensor: torch.Tensor, datatype: str) -> Tensor:
    """Return a request's tensor in memory that cannot be written to, as it comes from the wire."""
    return Tensor(name, datatype, tuple(tensor.shape), raw(tensor))


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def fp32(name: str, tensor: torch.Tensor) -> Tensor:
    return sent(name, tensor, "FP32")
