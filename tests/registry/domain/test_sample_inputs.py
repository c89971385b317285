from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.sample_inputs import MAX_SAMPLES, pack, read_samples
from registry.errors import ValidationFailed

X = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2.5]}


def one(**changes: Any) -> list[dict[str, Any]]:
    return [{"inputs": [X], **changes}]


def test_a_sample_with_everything() -> None:
    y = {"name": "y", "datatype": "INT64", "shape": [1, 2], "data": [[-1, 3]]}
    exact = {**X, "tolerance": {"absolute": 1}}
    (sample,) = read_samples(
        one(name="cat", expected=[y, exact], tolerance={"relative": 0.5}, parameters={"p": 1}, id="7")
    )
    assert (sample.name, dict(sample.head)) == ("cat", {"id": "7", "parameters": {"p": 1}})
    assert sample.inputs[0].data == struct.pack("<2f", 1, 2.5)
    assert [(one.tensor.data, one.absolute, one.relative) for one in sample.expected] == [
        (struct.pack("<2q", -1, 3), 0.0, 0.5),
        (struct.pack("<2f", 1, 2.5), 1.0, 0.0),
    ]


def test_usual_tolerances() -> None:
    whole = {"name": "y", "datatype": "BYTES", "shape": [], "data": ["é"]}
    (sample,) = read_samples(one(expected=[X, whole]))
    assert sample.name == "sample 1"
    assert [(one.absolute, one.relative) for one in sample.expected] == [(1e-5, 1e-4), (0, 0)]
    assert sample.expected[1].tensor.data == b"\x02\0\0\0\xc3\xa9"


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "samples"),
        ([], "samples"),
        (one() * (MAX_SAMPLES + 1), "samples"),
        ([7], "samples[0]"),
        ([{}], "samples[0].inputs"),
        (one(inputs=[]), "samples[0].inputs"),
        (one(inputs=[X, X]), "samples[0].inputs"),
        (one(name="/"), "samples[0].name"),
        ([*one(name="a"), *one(name="a")], "samples[1].name"),
        (one(input=[]), "samples[0].input"),
        (one(parameters={"a": []}), "samples[0].parameters"),
        (one(outputs=["y"]), "samples[0].outputs"),
        (one(tolerance=1), "samples[0].tolerance"),
        (one(tolerance={"absolute": -1}), "samples[0].tolerance"),
        (one(expected={}), "samples[0].expected"),
        (one(inputs=[{**X, "datatype": "FP8"}]), "samples[0].inputs[0].datatype"),
        (one(inputs=[{**X, "shape": [3]}]), "samples[0].inputs[0].data"),
        (one(inputs=[{**X, "shape": [2.0]}]), "samples[0].inputs[0].shape"),
        (one(inputs=[{**X, "shape": [1 << 40]}]), "samples[0].inputs[0].shape"),
        (one(inputs=[{**X, "data": [1, "2"]}]), "samples[0].inputs[0].data"),
        (one(inputs=[{**X, "datatype": "UINT8", "data": [1, 256]}]), "samples[0].inputs[0].data"),
        (one(inputs=[{**X, "datatype": "INT8", "data": [1, 2.5]}]), "samples[0].inputs[0].data"),
        (one(inputs=[{**X, "datatype": "FP32", "data": [1, 1e300]}]), "samples[0].inputs[0].data"),
        (one(inputs=[{**X, "datatype": "BOOL", "data": [True, 2]}]), "samples[0].inputs[0].data"),
        (one(inputs=[{**X, "name": ""}]), "samples[0].inputs[0].name"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused_with_its_place(document: Any, field: str) -> None:
    with pytest.raises(ValidationFailed) as told:
        read_samples(document)
    assert [error["field"] for error in told.value.errors] == [field]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "inputs", "expected", "datatype", "shape", "data"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON | st.lists(st.fixed_dictionaries({"inputs": st.lists(JSON, max_size=2)}), max_size=2))
def test_whatever_comes_is_read_or_refused(document: Any) -> None:
    try:
        samples = read_samples(document)
    except ValidationFailed:
        return
    assert samples


@given(st.lists(st.integers(-(2**15), 2**15 - 1)))
def test_whole_numbers_are_packed(values: list[int]) -> None:
    assert list(struct.unpack(f"<{len(values)}h", pack("INT16", values))) == values
