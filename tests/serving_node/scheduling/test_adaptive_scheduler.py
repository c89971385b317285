"""A model whose delay adapts: the scheduler measures its own answers and moves the delay of its batcher."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from serving_node.observability.delay_state import DelayReason
from serving_node.scheduling.adaptive_scheduler import AdaptiveScheduler
from serving_node.scheduling.batcher import DynamicBatcher
from serving_node.scheduling.scheduler import Scheduler
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import load
from tests.serving_node.scheduling.test_scheduler import Client

CONFIG = 'backend: "onnxruntime" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 500 }'
KEY = ' parameters { key: "flotilla.p99_target_microseconds" value { string_value: "%d" } }'


@pytest.mark.parametrize(
    ("target_us", "reason", "grows"), [(3_600_000_000, DelayReason.GROWING, True), (1, DelayReason.UNREACHABLE, False)]
)
async def test_the_delay_follows_what_is_measured(
    tmp_path: Path, target_us: int, reason: DelayReason, grows: bool
) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, CONFIG + KEY % target_us)
    assert isinstance(model.scheduler, AdaptiveScheduler)
    assert isinstance(model.scheduler._batcher, DynamicBatcher)
    client, state = Client(), model.statistics.adaptive_delay
    assert state is not None and state.reason is DelayReason.MEASURING
    start_ns = state.delay_ns

    for wave in range(8):
        for number in range(200):
            tensor = Tensor.from_numpy("x", np.ones((1, 16), np.float32), "FP32")
            request = InferenceRequest("m", "1", [tensor], client.answered, f"{wave} {number}")
            request.arrival_ns = time.monotonic_ns()
            model.rules.check(request)
            model.submit(request)
        await client.wait_for(200 * (wave + 1))

    assert state.reason is reason
    assert state.p99_ns > 0
    assert (state.delay_ns > start_ns) is grows
    assert model.scheduler._batcher.delay_ns == state.delay_ns
    await model.close()


async def test_a_model_without_a_target_has_the_plain_scheduler(tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, CONFIG)
    assert type(model.scheduler) is Scheduler
    assert model.statistics.adaptive_delay is None
    await model.close()
