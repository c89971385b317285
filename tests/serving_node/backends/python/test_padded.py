"""Padding for models in Python: they get inputs that stack, with a mask, and answer each request in its own length."""

from __future__ import annotations

import numpy as np

from tests.serving_node.backends.python.conftest import Models

BODY = """
def execute(self, requests):
    rows, masks = (
        [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for request in requests] for name in ("IN", "MASK")
    )
    sums = np.cumsum(np.concatenate(rows) * np.concatenate(masks), axis=1)
    parts = np.split(sums, np.cumsum([len(part) for part in rows])[:-1])
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", part.astype(np.float32))]) for part in parts]
"""
EXTRA = """
max_batch_size: 8 dynamic_batching { preferred_batch_size: 3 max_queue_delay_microseconds: 5000000 }
parameters { key: "flotilla.padding.IN" value { string_value: "0" } }
parameters { key: "flotilla.padding_mask.IN" value { string_value: "MASK:FP32" } }
parameters { key: "flotilla.padding_outputs.IN" value { string_value: "OUT" } }
"""


async def test_requests_of_different_lengths_stack(models: Models) -> None:
    model = await models.load(BODY, extra=EXTRA, datatype="TYPE_FP32")
    given = [np.ones((1, length), np.float32) for length in (2, 5, 3)]
    asked = [models.ask(model, array) for array in given]
    for array, one in zip(given, asked, strict=True):
        np.testing.assert_array_equal(await one.array(), np.cumsum(array, axis=1))
    assert set(model.statistics.batches) == {3}
