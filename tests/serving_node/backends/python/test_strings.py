"""Large tensors of strings are read in the worker: a bad one is refused there, and nothing else suffers."""

from __future__ import annotations

import numpy as np
import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.tensor import Tensor, encode_bytes_elements

from .conftest import Asked, Models

ECHO = """
def execute(self, requests):
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]) for request in requests
    ]
"""
BATCHED = """
backend: "python" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 200000 preferred_batch_size: 2 }
input { name: "IN" data_type: TYPE_STRING dims: -1 } output { name: "OUT" data_type: TYPE_STRING dims: -1 }
"""
COUNT = 5000
GOOD = encode_bytes_elements(np.array([b"ab"] * COUNT, dtype=np.object_))
BAD = {
    GOOD[:-1]: "incomplete string data for inference input 'IN' for model 'm'",
    GOOD + b"\0": "incomplete string length indicator for inference input 'IN' for model 'm'",
    GOOD[:-6]: "expected 5000 string elements for inference input 'IN' for model 'm', got 4999",
    b"\xff" * len(GOOD): "expected 5000 string elements for inference input 'IN' for model 'm', got 1",
}


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
async def test_a_request_that_cannot_be_read_is_refused_and_others_of_its_batch_are_served(
    models: Models, data: bytes
) -> None:
    model = await models.load(ECHO, config=BATCHED)
    asked = [Asked(model, Tensor("IN", "BYTES", (1, COUNT), part), "r", []) for part in (GOOD, data, GOOD)]
    for one in asked:
        one.request.arrival_ns = 1
        model.rules.check(one.request)
        model.submit(one.request)
    first, bad, last = [await one.answer() for one in asked]
    assert bad.error is not None and bad.error.code is ErrorCode.INVALID_ARG
    assert bad.error.message == f"[request id: r] {BAD[data]}"
    assert bytes(first.outputs[0].data) == bytes(last.outputs[0].data) == GOOD
    assert model.ready()
