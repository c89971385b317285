"""A PyTorch model loaded in this process, and requests to it."""

from __future__ import annotations

from pathlib import Path

import torch

from serving_node.backends.loader import Backends
from serving_node.backends.pytorch.backend import PyTorchBackend
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.request import InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel
from tests.serving_node.backends.model_calls import arrays, infer

__all__ = ["arrays", "failure", "fp32", "infer", "load", "raw", "sent"]


async def load(folder: Path, config: str = "", *, gpu_count: int = 0) -> ServedModel:
    """Load a version's folder on threads of this process, which only tests may do."""
    backends = Backends()
    backends.register(PyTorchBackend())
    parsed = parse_pbtxt(f'backend: "pytorch" {config}')
    return await load_served_model(
        name="m", version=1, version_dir=folder, config=parsed, backends=backends, gpu_count=gpu_count
    )


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
