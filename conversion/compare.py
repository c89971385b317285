"""How far the outputs of two files are apart. Pure."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from serving_node.contract.conversion import OutputComparison, Tolerance

Array = npt.NDArray[np.generic]
_LARGEST = sys.float_info.max
_WIRE_NAMES = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16"}


def compare(
    names: Sequence[str], reference: Sequence[Array], candidate: Sequence[Array], tolerance: Tolerance
) -> tuple[OutputComparison, ...]:
    """Compare the outputs of one sample, in order; ``names`` are the candidate's. Their verdicts are not yet made."""
    compared = [
        compare_output(name, first, second, tolerance)
        for name, first, second in zip(names, reference, candidate, strict=False)
    ]
    for index in range(len(compared), max(len(reference), len(candidate))):
        name = names[index] if index < len(names) else f"output {index}"
        which = "the converted file" if index >= len(candidate) else "the first file"
        compared.append(OutputComparison(name, "", problem=f"{which} has no such output"))
    return tuple(compared)


def compare_output(name: str, reference: Array, candidate: Array, tolerance: Tolerance) -> OutputComparison:
    """Compare one output.

    Floats may differ by the tolerance; NaN equals NaN and infinity equals infinity of its sign. Everything else must
    be equal. Floats of different width are compared by value.
    """
    reference, candidate = np.asarray(reference), np.asarray(candidate)
    datatype = _datatype(candidate)
    kinds = _kind(reference), _kind(candidate)
    if kinds[0] != kinds[1]:
        return OutputComparison(name, datatype, problem=f"is {datatype} instead of {_datatype(reference)}")
    if reference.shape != candidate.shape:
        shapes = f"has the shape {list(candidate.shape)} instead of {list(reference.shape)}"
        return OutputComparison(name, datatype, problem=shapes)
    if kinds[0] != "float":
        differing = int(np.count_nonzero(reference.astype(object) != candidate.astype(object)))
        return OutputComparison(name, datatype, reference.size, differing, is_exact=True)
    return _compare_floats(name, datatype, reference.astype(np.float64), candidate.astype(np.float64), tolerance)


def _compare_floats(
    name: str, datatype: str, reference: npt.NDArray[np.float64], candidate: npt.NDArray[np.float64], limits: Tolerance
) -> OutputComparison:
    finite = np.isfinite(reference) & np.isfinite(candidate)
    same = (np.isnan(reference) & np.isnan(candidate)) | (reference == candidate)
    non_finite = int(np.count_nonzero(~finite & ~same))
    first, second = reference[finite], candidate[finite]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        difference = np.minimum(np.abs(first - second), _LARGEST)
        allowed = limits.absolute + limits.relative * np.abs(first)
        ratio = np.where(difference == 0, 0.0, np.minimum(difference / allowed, _LARGEST))
        relative = np.minimum(difference[first != 0] / np.abs(first[first != 0]), _LARGEST)
    return OutputComparison(
        name,
        datatype,
        elements=reference.size,
        differing=int(np.count_nonzero(ratio > 1)) + non_finite,
        non_finite=non_finite,
        max_absolute=float(difference.max(initial=0.0)),
        max_relative=float(relative.max(initial=0.0)),
        worst=float(ratio.max(initial=0.0)),
    )


def merge(first: Sequence[OutputComparison], second: Sequence[OutputComparison]) -> tuple[OutputComparison, ...]:
    """Return the figures of both samples together: counts added, the larger of each maximum, the first problem."""
    return tuple(
        dataclasses.replace(
            one,
            elements=one.elements + two.elements,
            differing=one.differing + two.differing,
            non_finite=one.non_finite + two.non_finite,
            max_absolute=max(one.max_absolute, two.max_absolute),
            max_relative=max(one.max_relative, two.max_relative),
            worst=max(one.worst, two.worst),
            is_exact=one.is_exact or two.is_exact,
            problem=one.problem or two.problem,
        )
        for one, two in zip(first, second, strict=True)
    )


def _kind(array: Array) -> str:
    if array.dtype.kind in "OUS":
        return "text"
    if array.dtype.kind in "biu":
        return "whole"
    return "float"


def _datatype(array: Array) -> str:
    if array.dtype.kind in "OUS":
        return "BYTES"
    return _WIRE_NAMES.get(array.dtype.name, array.dtype.name.upper())
