"""Reports of conversions: verdicts follow from figures, and reports survive the way over the wire."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.conversion import (
    ConversionReport,
    ConversionVerdict,
    ConvertedFile,
    OutputComparison,
    SampleInputs,
    Tolerance,
    judged,
    output_verdict,
    worst_output,
)

PASS, WARN, FAIL = ConversionVerdict
FILE = ConvertedFile("model.onnx", "a" * 64, 10, "onnx")
figures = st.floats(0, 1e300, allow_nan=False)
outputs = st.builds(
    OutputComparison,
    name=st.text(max_size=3),
    datatype=st.sampled_from(["FP32", "INT64"]),
    elements=st.integers(0, 9),
    differing=st.integers(0, 9),
    non_finite=st.integers(0, 2),
    max_absolute=figures,
    max_relative=figures,
    worst=figures,
    is_exact=st.booleans(),
    problem=st.sampled_from(["", "has the shape [1] instead of [2]"]),
    verdict=st.sampled_from(ConversionVerdict),
)
reports = st.builds(
    ConversionReport,
    st.just(FILE),
    st.just(FILE),
    st.just(("onnx", "fp16")),
    st.builds(Tolerance, figures, figures),
    st.builds(SampleInputs, st.lists(st.integers(1, 9)).map(tuple), st.none() | st.integers(0, 9)),
    st.lists(outputs, max_size=4).map(tuple),
    st.just({"onnx": "1.23"}),
    st.just(("a note",)),
)


@given(reports)
def test_reports_come_back_as_they_went(report: ConversionReport) -> None:
    assert ConversionReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@given(reports)
def test_the_verdict_is_the_worst_of_the_outputs_whatever_was_claimed(report: ConversionReport) -> None:
    result = judged(report)
    severity = [PASS, WARN, FAIL]
    verdicts = [output.verdict for output in result.outputs]
    assert verdicts == [output_verdict(output) for output in report.outputs]
    assert result.verdict == (max(verdicts, key=severity.index) if verdicts else FAIL)
    assert judged(result) == result
    worst = worst_output(result)
    assert (worst is None) == (not report.outputs)
    assert worst is None or worst.verdict == result.verdict


@given(outputs, figures)
def test_more_difference_never_makes_a_better_verdict(output: OutputComparison, more: float) -> None:
    severity = [PASS, WARN, FAIL]
    larger = dataclasses.replace(output, worst=max(output.worst, more))
    assert severity.index(output_verdict(larger)) >= severity.index(output_verdict(output))


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, PASS),
        ({"worst": 1.0}, PASS),
        ({"worst": 1.01, "differing": 1}, WARN),
        ({"worst": 10.0}, WARN),
        ({"worst": 10.1}, FAIL),
        ({"non_finite": 1}, FAIL),
        ({"problem": "the converted file has no such output"}, FAIL),
        ({"is_exact": True}, PASS),
        ({"is_exact": True, "differing": 1}, FAIL),
        ({"elements": 0}, WARN),
    ],
)
def test_verdicts(change: dict[str, object], verdict: ConversionVerdict) -> None:
    output = OutputComparison("y", "FP32", elements=4)
    assert output_verdict(dataclasses.replace(output, **change)) == verdict  # type: ignore[arg-type]
