"""Loading one model as the node does and calling it without a network."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from serving_node.backends.loader import Backends
from serving_node.contract.model_config import ModelConfig, parse_pbtxt
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel

DEADLINE = 60.0


async def load(
    folder: Path,
    config: str | ModelConfig = 'backend: "onnxruntime"',
    name: str = "m",
    *,
    gpu_count: int = 0,
    **options: str,
) -> ServedModel:
    """Load the version in ``folder``; ``config`` as text or message, ``options`` are those of all backends."""
    parsed = parse_pbtxt(config) if isinstance(config, str) else config
    return await load_served_model(
        name=name, version=1, version_dir=folder, config=parsed, backends=Backends({"": options}), gpu_count=gpu_count
    )


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
    """Return the outputs of a response that is no error."""
    assert response.error is None, response.error
    return {tensor.name: tensor.as_numpy() for tensor in response.outputs}
