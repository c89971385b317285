"""kill -9 of a worker amid a thousand requests: those inside it fail at once, all others are answered."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest

from serving_node.core.errors import InferenceError

from .conftest import IDENTITY, Models
from .test_hosted import pids

LARGEST_BATCH = 8
REQUESTS = 1000
KILLS = (200, 500, 800)

PYTHON = IDENTITY.replace('"identity"', '"python"')
SOURCE = b"""
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.002)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.inputs()[0].as_numpy())]) for one in requests
        ]
"""
SLOW = ' parameters { key: "execute_delay_ms" value { string_value: "2" } }'


@pytest.mark.parametrize(
    ("config", "files", "sentence"),
    [
        (IDENTITY + SLOW, {}, "the worker process of instance 'm_0' ended unexpectedly"),
        (PYTHON, {"model.py": SOURCE}, "Stub process 'm_0' is not healthy."),
    ],
    ids=["hosted", "python"],
)
@pytest.mark.parametrize("width", [4, 20_000], ids=["small", "shared memory"])
async def test_only_the_requests_inside_are_lost(
    models: Models, config: str, files: dict[str, bytes], sentence: str, width: int
) -> None:
    model = await models.load(config + " dynamic_batching { }", files=files)
    row = np.ones((1, width), np.float32)
    asked = [models.submit(model, row * number) for number in range(REQUESTS)]
    for number in KILLS:
        await asked[number].answer()
        if model.ready():  # else the one before is still being replaced
            os.kill(pids(model)[0], signal.SIGKILL)
    answers = await asyncio.gather(*(one.answer() for one in asked))
    errors = [answer.error for answer in answers if answer.error is not None]
    assert {error.message for error in errors} <= {sentence}
    assert all(isinstance(error, InferenceError) for error in errors)
    assert 1 <= len(errors) <= LARGEST_BATCH * len(KILLS)
    for number, (one, answer) in enumerate(zip(asked, answers, strict=True)):
        assert len(one.responses) == 1
        assert answer.error or answer.outputs[0].as_numpy()[0, -1] == number
