"""Inputs for comparisons: drawn within what the signature says, or read from a file that must fit it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversion.errors import ConversionFailed
from conversion.samples import Dynamic, InputSpec, given_inputs, random_inputs, rows_of, specs_of
from serving_node.contract.signature import ModelSignature, TensorSignature

TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "INT8": "int8",
    "UINT16": "uint16",
    "INT16": "int16",
    "UINT32": "uint32",
    "INT32": "int32",
    "UINT64": "uint64",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "object",
}
dimensions = st.integers(0, 5) | st.builds(
    Dynamic, st.sampled_from("abc"), st.integers(1, 3), st.none() | st.integers(3, 9)
)
specs = st.lists(
    st.builds(
        InputSpec, st.text(max_size=3), st.sampled_from(list(TYPES)), st.lists(dimensions, max_size=3).map(tuple)
    ),
    unique_by=lambda spec: spec.name,
    max_size=3,
)


@given(specs, st.integers(1, 8), st.integers(0, 99), st.tuples(st.integers(0, 3), st.integers(3, 90)))
def test_samples_fit_what_the_signature_says(
    specs: list[InputSpec], batch: int, seed: int, integers: tuple[int, int]
) -> None:
    first = random_inputs(specs, batch=batch, seed=seed, integers=integers)
    again = random_inputs(specs, batch=batch, seed=seed, integers=integers)
    for spec in specs:
        array = first[spec.name]
        assert array.dtype == TYPES[spec.datatype]
        np.testing.assert_array_equal(array, again[spec.name])
        for wanted, size in zip(spec.shape, array.shape, strict=True):
            if isinstance(wanted, Dynamic):
                assert size >= wanted.low
                assert wanted.high is None or size <= wanted.high
            else:
                assert size == wanted
        if array.dtype.kind in "iu" and array.size:
            assert integers[0] <= array.min() <= array.max() <= integers[1]


def test_one_symbol_has_one_size_and_the_batch_is_that_of_the_first_dimensions() -> None:
    batch, length = Dynamic("batch"), Dynamic("length", 1, 5)
    inputs = [InputSpec("x", "FP32", (batch, length)), InputSpec("y", "INT64", (batch, 3, length))]
    drawn = random_inputs(inputs, batch=7, seed=0, dynamic_size=9)
    assert (drawn["x"].shape, drawn["y"].shape) == ((7, 5), (7, 3, 5))
    assert rows_of(drawn) == 7
    assert not np.array_equal(drawn["x"], random_inputs(inputs, batch=7, seed=1, dynamic_size=9)["x"])


def test_values_are_missing_only_where_a_model_does_without() -> None:
    def drawn(may_miss: bool) -> int:
        spec = InputSpec("x", "FP32", (100, 10), may_miss=may_miss)
        return int(np.isnan(random_inputs([spec], batch=1, seed=0)["x"]).sum())

    assert drawn(False) == 0
    assert 0 < drawn(True) < 500


def test_a_signature_gives_inputs_with_one_batch() -> None:
    signature = ModelSignature((TensorSignature("x", "FP32", (-1, -1, 4)),), ())
    assert specs_of(signature) == (InputSpec("x", "FP32", (Dynamic("batch"), Dynamic("x.1"), 4)),)


def test_types_without_numbers_in_the_range_are_refused() -> None:
    with pytest.raises(ConversionFailed, match="no number of the range"):
        random_inputs([InputSpec("x", "INT8", (1,))], batch=1, seed=0, integers=(300, 400))
    with pytest.raises(ConversionFailed, match="type BF16"):
        random_inputs([InputSpec("x", "BF16", (1,))], batch=1, seed=0)


SPECS = [InputSpec("x", "FP32", (Dynamic("batch"), 2)), InputSpec("name", "BYTES", (Dynamic("batch"),))]


def test_given_arrays_are_taken_by_name(tmp_path: Path) -> None:
    file = tmp_path / "samples.npz"
    np.savez(file, x=np.ones((3, 2)), name=np.array(["a", "b", "c"]))
    found = given_inputs(file, SPECS)
    assert found["x"].dtype == np.float32
    assert (found["name"].dtype, list(found["name"])) == (np.dtype(object), ["a", "b", "c"])


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": np.ones((3, 2))}, "has no array 'name'; it needs x, name"),
        ({"x": np.ones((3, 2)), "name": np.array(["a"]), "z": np.ones(1)}, "has an array 'z', but the inputs are"),
        ({"x": np.ones((3, 3)), "name": np.array(["a"])}, r"has the shape \[-1, 2\], but the sample \[3, 3\]"),
        ({"x": np.ones(3), "name": np.array(["a"])}, r"but the sample \[3\]"),
        ({"x": np.array([["a", "b"]]), "name": np.array(["a"])}, "'x' is of type FP32, but the sample is <U1"),
        ({"x": np.ones((3, 2)), "name": np.ones(3)}, "'name' is of type BYTES, but the sample is float64"),
        ({"x": np.ones((3, 2), complex), "name": np.array(["a"])}, "is complex128"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray[object, np.dtype[np.generic]]], sentence: str
) -> None:
    file = tmp_path / "samples.npz"
    np.savez(file, **arrays)  # type: ignore[arg-type]
    with pytest.raises(ConversionFailed, match=sentence):
        given_inputs(file, SPECS)


def test_samples_never_run_code(tmp_path: Path) -> None:
    file = tmp_path / "samples.npz"
    np.savez(file, x=np.array([{"an": "object"}], dtype=object), name=np.array(["a"]))
    with pytest.raises(ConversionFailed, match=r"no .npz file of plain arrays"):
        given_inputs(file, SPECS)
    file.write_bytes(b"not an archive")
    with pytest.raises(ConversionFailed, match=r"no .npz file of plain arrays"):
        given_inputs(file, SPECS)
