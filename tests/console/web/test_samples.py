"""Sample inputs fit their signature."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from console.web.samples import sample_inputs, values

TYPES = st.sampled_from(["FP32", "FP16", "INT64", "UINT8", "BOOL", "BYTES"])


@given(TYPES, st.lists(st.integers(1, 5), max_size=3))
def test_values_fill_the_shape_and_are_json(datatype: str, shape: list[int]) -> None:
    for fill in ("random", "zeros", "ones"):
        found = values(datatype, tuple(shape), fill)
        assert len(found) == math.prod(shape)
        assert json.loads(json.dumps(found)) == found
    assert values(datatype, tuple(shape), "random") == values(datatype, tuple(shape), "random")


def test_dynamic_dimensions_get_small_sizes_and_large_tensors_stay_out_of_the_page() -> None:
    signature = {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 16]},
            {"name": "image", "datatype": "FP32", "shape": [-1, 3, 224, 224]},
        ],
        "outputs": [],
    }
    small, large = sample_inputs(signature)
    assert (small.shape, small.fill, len(json.loads(small.data))) == ((1, 16), "typed", 16)
    assert (large.shape, large.fill, large.data) == ((1, 3, 224, 224), "random", "")
    assert sample_inputs(None) == []
