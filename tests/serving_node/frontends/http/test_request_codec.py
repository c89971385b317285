"""The JSON codec against numpy and against garbage."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import NUMPY_DTYPES, Tensor
from serving_node.frontends.http.json_data import parse_json, tensor_bytes, write_data
from serving_node.frontends.http.request_codec import parse_infer

NUMERIC = [name for name in NUMPY_DTYPES if name not in ("BYTES", "FP16", "BF16")]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("datatype", NUMERIC)
@given(data=st.data(), nested=st.booleans())
@settings(max_examples=40, deadline=None)
def test_numbers_survive_both_ways(datatype: str, data: Any, nested: bool) -> None:
    dtype = NUMPY_DTYPES[datatype]
    numbers = arrays.from_dtype(dtype, allow_nan=False) if dtype.kind == "f" else arrays.from_dtype(dtype)
    shape = data.draw(arrays.array_shapes(max_dims=3, max_side=4, min_side=0))
    array = data.draw(arrays.arrays(dtype, shape, elements=numbers))
    values = array.tolist() if nested else array.reshape(-1).tolist()
    text = json.dumps({"inputs": [{"name": "A", "datatype": datatype, "shape": list(shape), "data": values}]})
    (parsed,) = parse_infer(text.encode()).inputs
    assert parsed.data == array.tobytes()
    written = json.loads(write_data("A", datatype, array.tobytes()))
    assert np.array(written, dtype).tobytes() == array.tobytes()


@given(st.lists(st.text(max_size=6), max_size=6))
@settings(max_examples=50, deadline=None)
def test_texts_survive_both_ways(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    text = json.dumps({"inputs": [{"name": "A", "datatype": "BYTES", "shape": [len(texts)], "data": texts}]})
    (parsed,) = parse_infer(text.encode()).inputs
    assert parsed.data is not None
    assert Tensor("A", "BYTES", (len(texts),), parsed.data).as_numpy().tolist() == [item.encode() for item in texts]
    assert json.loads(write_data("A", "BYTES", parsed.data)) == texts


@given(JSON, JSON, JSON, JSON, JSON, st.sampled_from(sorted(NUMPY_DTYPES)))
@settings(max_examples=300, deadline=None)
def test_wrong_documents_are_refused_not_crashed(a: Any, b: Any, c: Any, d: Any, e: Any, datatype: str) -> None:
    for document in (
        a,
        {"inputs": a, "outputs": b, "parameters": c},
        {"id": a, "inputs": [{"name": b, "datatype": datatype, "shape": c, "data": d, "parameters": e}]},
        {"inputs": [{"name": "A", "datatype": datatype, "shape": [1], "data": [a]}], "outputs": [b], "parameters": c},
        {"inputs": [], "outputs": [{"name": "A", "parameters": a}]},
    ):
        with contextlib.suppress(InferenceError):
            parse_infer(json.dumps(document).encode())


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_garbage_is_refused_not_crashed(text: bytes) -> None:
    with contextlib.suppress(InferenceError):
        parse_infer(text)


def test_numbers_that_json_does_not_know() -> None:
    data = tensor_bytes("A", "FP32", parse_json(b"[NaN, -Infinity, [Infinity], 1]"), 4)
    assert write_data("A", "FP32", data) == b"[NaN,-Infinity,Infinity,1.0]"
    with pytest.raises(InferenceError, match="number is infinity"):
        parse_json(b"[1e400]")


def test_strings_that_are_not_text() -> None:
    data = tensor_bytes("A", "BYTES", parse_json(b'{"data":["\xff\xc3\xa9\\n"]}')["data"], 1)
    assert data == b"\x04\0\0\0\xff\xc3\xa9\n"
    assert json.loads(write_data("A", "BYTES", data)) == ["\ufffd\xe9\n"]
    assert parse_json(b'\xef\xbb\xbf{"id":"\xff"}') == {"id": "\ufffd"}, "elsewhere they become text"
    for text in (rb'["\ud83d"]', rb'["\ude00\ud83d"]', b'["\xff\\ud83d"]'):
        with pytest.raises(InferenceError, match="failed to parse the request JSON buffer"):
            parse_json(text)
    for text in (rb'{"id":"\\ud83d\ude00","x":NaN}', rb'{"x":"\\ud83d\ude00","data":["\\ud83d\ude00",NaN]}'):
        with pytest.raises(InferenceError, match="failed to parse the request JSON buffer"):
            parse_json(text)
    with pytest.raises(InferenceError, match="surrogate pair"):
        tensor_bytes("A", "BYTES", parse_json(rb'{"x":NaN,"data":["\\ud83d\ude00"]}')["data"], 1)
    assert parse_json(b'["\xff", "\\ud83d\\ude00"]') == ["\ufffd", "\U0001f600"]


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 5000, 200_000])
def test_depth(depth: int) -> None:
    text = b"[" * depth + b"1" + b"]" * depth
    if depth < 100:
        assert tensor_bytes("A", "INT8", parse_json(text), 1) == b"\1"
        return
    with pytest.raises(InferenceError, match=r"JSON nesting depth exceeds maximum allowed limit \(100\)"):
        tensor_bytes("A", "INT8", parse_json(text), 1)


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_json_or_refused(text: bytes) -> None:
    with contextlib.suppress(InferenceError):
        parse_json(text)


@given(JSON, st.sampled_from(list(NUMPY_DTYPES)), st.none() | st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_any_json_is_a_tensor_or_refused(data: Any, datatype: str, count: int | None) -> None:
    with contextlib.suppress(InferenceError):
        found = tensor_bytes("A", datatype, data if isinstance(data, list) else [data], count)
        assert count is None or datatype == "BYTES" or len(found) == count * NUMPY_DTYPES[datatype].itemsize


@pytest.mark.parametrize("shape", [[2**62] * 50_000, [2**62] * 50_000 + [0], [2**63], [2**40, 2**40]])
def test_shapes_without_bounds(shape: list[int]) -> None:
    text = json.dumps({"inputs": [{"name": "A", "datatype": "INT8", "shape": shape, "data": [1]}]})
    with pytest.raises(InferenceError, match=r"^invalid shape for input 'A': shape \[.* (exceed|invalid)"):
        parse_infer(text.encode())


def test_the_shape_that_ends_other_servers() -> None:
    text = b'{"inputs": [{"name": "A", "datatype": "FP32", "shape": [9223372036854775807], "data": [1]}]}'
    with pytest.raises(InferenceError, match=r"^byte size overflow for input 'A': element count") as caught:
        parse_infer(text)
    assert caught.value.code is ErrorCode.INVALID_ARG
