"""Ten thousand requests that wait at once: each is answered once, with its own answer, in full batches."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import load

COUNT = 10_000
POLICIES = {
    "first in, first out": "",
    "time-outs": "default_queue_policy { default_timeout_microseconds: 3600000000 }",
    "levels": "priority_levels: 4 default_priority_level: 2",
}


@pytest.mark.parametrize("rules", POLICIES.values(), ids=POLICIES)
async def test_ten_thousand_requests_wait_and_are_answered(tmp_path: Path, rules: str) -> None:
    path = onnx_models.save_add_sub(tmp_path / "1" / "model.onnx")
    config = f'backend: "onnxruntime" max_batch_size: 64 dynamic_batching {{ {rules} }}'
    model = await load(path.parent, config)
    answers: dict[int, list[int]] = {}
    done = asyncio.Event()

    def answered(response: InferenceResponse) -> None:
        assert response.error is None, response.error
        assert int(response.id) not in answers, "answered twice"
        answers[int(response.id)] = [int(tensor.as_numpy()[0, 0]) for tensor in response.outputs]
        if len(answers) == COUNT:
            done.set()

    for number in range(COUNT):
        arrays = (np.full((1, 16), number, np.int32), np.full((1, 16), 7, np.int32))
        inputs = [Tensor.from_numpy(f"INPUT{place}", array, "INT32") for place, array in enumerate(arrays)]
        request = InferenceRequest("m", "1", inputs, answered, str(number), priority=number % 5)
        model.rules.check(request)
        model.submit(request)
    assert model.scheduler.pending_count() > COUNT // 2
    await asyncio.wait_for(done.wait(), 60)

    assert answers == {number: [number + 7, number - 7] for number in range(COUNT)}
    assert model.scheduler.pending_count() == model.scheduler.inflight_count() == 0
    assert max(model.statistics.batches) == 64
    await model.close()
