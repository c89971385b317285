"""Differences of outputs, against a plain loop over the elements."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversion.compare import compare, compare_output, merge
from serving_node.contract.conversion import OutputComparison, Tolerance

TOLERANCE = Tolerance(relative=1e-2, absolute=1e-3)
floats = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])
pairs = st.lists(st.tuples(floats, floats) | floats.map(lambda value: (value, value)), max_size=20)


def by_hand(values: list[tuple[float, float]]) -> tuple[int, int, float, float]:
    differing = non_finite = 0
    absolute = relative = 0.0
    for first, second in values:
        if math.isnan(first) and math.isnan(second):
            continue
        if not (math.isfinite(first) and math.isfinite(second)):
            if first != second:
                non_finite += 1
            continue
        difference = abs(first - second)
        absolute = max(absolute, difference)
        if first != 0:
            relative = max(relative, min(difference / abs(first), sys.float_info.max))
        differing += difference > TOLERANCE.absolute + TOLERANCE.relative * abs(first)
    return differing + non_finite, non_finite, absolute, relative


@given(pairs)
def test_figures_are_those_of_a_plain_loop(values: list[tuple[float, float]]) -> None:
    first = np.array([one for one, _ in values], np.float64)
    second = np.array([two for _, two in values], np.float64)
    found = compare_output("y", first, second, TOLERANCE)
    differing, non_finite, absolute, relative = by_hand(values)
    assert (found.elements, found.differing, found.non_finite) == (len(values), differing, non_finite)
    assert found.max_absolute == pytest.approx(absolute)
    assert found.max_relative == pytest.approx(relative)
    assert (found.worst > 1) == (differing > non_finite)


@given(pairs)
def test_an_output_equals_itself(values: list[tuple[float, float]]) -> None:
    one = np.array(values, np.float32)
    found = compare_output("y", one, one, Tolerance(0.0, 0.0))
    assert (found.differing, found.worst, found.max_absolute) == (0, 0.0, 0.0)


@given(pairs, pairs)
def test_parts_merge_to_the_whole(first: list[tuple[float, float]], second: list[tuple[float, float]]) -> None:
    def of(values: list[tuple[float, float]]) -> tuple[OutputComparison, ...]:
        columns = np.array(values, np.float64).reshape(-1, 2)
        return compare(["y"], [columns[:, 0]], [columns[:, 1]], TOLERANCE)

    assert merge(of(first), of(second)) == of(first + second)


def test_no_tolerance_asks_for_equality() -> None:
    found = compare_output("y", np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-12]), Tolerance(0.0, 0.0))
    assert (found.differing, found.worst) == (1, sys.float_info.max)


@pytest.mark.parametrize(
    ("first", "second", "differing"),
    [
        (np.array([1, 2, 3]), np.array([1, 2, 4]), 1),
        (np.array([1, 2], np.int32), np.array([1, 2], np.int64), 0),
        (np.array([2**53, 2**53 + 1]), np.array([2**53, 2**53]), 1),
        (np.array([True, False]), np.array([True, True]), 1),
        (np.array(["a", "b"]), np.array(["a", "c"], dtype=object), 1),
        (np.array(["a", "b"]), np.array(["a", "b"], dtype=object), 0),
    ],
)
def test_what_is_no_float_must_be_equal(first: Any, second: Any, differing: int) -> None:
    found = compare_output("y", first, second, Tolerance(1.0, 1.0))
    assert (found.is_exact, found.differing) == (True, differing)


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (np.zeros(3), np.zeros((3, 1)), "has the shape [3, 1] instead of [3]"),
        (np.zeros(3, np.int64), np.zeros(3, np.float32), "is FP32 instead of INT64"),
        (np.zeros(3, np.float32), np.array(["a"]), "is BYTES instead of FP32"),
    ],
)
def test_other_shapes_and_types_are_named(first: Any, second: Any, problem: str) -> None:
    assert compare_output("y", first, second, TOLERANCE).problem == problem


def test_outputs_that_one_file_lacks_are_named() -> None:
    one = np.zeros(1)
    assert [c.problem for c in compare(["a", "b"], [one], [one, one], TOLERANCE)] == [
        "",
        "the first file has no such output",
    ]
    assert [(c.name, c.problem) for c in compare(["a"], [one, one], [one], TOLERANCE)][1] == (
        "output 1",
        "the converted file has no such output",
    )


def test_half_precision_is_compared_by_value() -> None:
    found = compare_output("y", np.array([1.0, 1e5], np.float32), np.array([1.0, np.inf], np.float16), TOLERANCE)
    assert (found.problem, found.non_finite, found.datatype) == ("", 1, "FP16")
