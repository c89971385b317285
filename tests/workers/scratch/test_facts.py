"""How an output is compared with the one that is wanted, as the program in the sandbox does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.domain.sample_inputs import read_samples
from workers.checks.samples import asked_of
from workers.scratch.inside.facts import facts_of, wanted_in


def difference(tmp_path: Path, datatype: str, got: bytes, wanted: list[Any], tolerance: Any = None) -> Any:
    y = {"name": "y", "datatype": datatype, "shape": [len(wanted)], "data": wanted}
    (sample,) = read_samples([{"inputs": [y], "expected": [y], **({"tolerance": tolerance} if tolerance else {})}])
    (tmp_path / "expected").write_bytes(asked_of(sample).request.expected)
    outputs = wanted_in({"expected": str(tmp_path / "expected")})
    (facts,) = facts_of([("y", datatype, [len(wanted)], got)], outputs)
    assert json.dumps(facts)
    return facts["difference"]


@pytest.mark.parametrize(
    ("datatype", "got", "wanted", "tolerance", "wrong", "index"),
    [
        ("FP32", np.array([1, 2], "<f4").tobytes(), [1, 2.00001], None, 0, None),
        ("FP32", np.array([1, 2], "<f4").tobytes(), [1, 2.1], None, 1, 1),
        ("FP32", np.array([1, 2], "<f4").tobytes(), [1, 2.1], {"absolute": 0.2}, 0, None),
        ("FP32", np.array([np.nan, np.inf], "<f4").tobytes(), [1, 2.1], {"absolute": 9}, 2, 0),
        ("FP16", np.array([60000, -60000], "<f2").tobytes(), [60000, 60000], None, 1, 1),
        ("BF16", b"\x80\x3f", [1], None, 0, None),
        ("INT64", np.array([2**62 + 1], "<i8").tobytes(), [2**62], None, 1, 0),
        ("UINT8", bytes([3, 4]), [4, 4], {"absolute": 1}, 0, None),
        ("BOOL", b"\1\0", [True, True], None, 1, 1),
        ("BYTES", b"\1\0\0\0a", ["a"], None, 0, None),
        ("BYTES", b"\1\0\0\0b", ["a"], None, 1, 0),
    ],
    ids=["near", "far", "allowed", "nan", "halves", "brain", "long", "whole", "truth", "text", "other_text"],
)
def test_elements(
    tmp_path: Path, datatype: str, got: bytes, wanted: list[Any], tolerance: Any, wrong: int, index: int | None
) -> None:
    found = difference(tmp_path, datatype, got, wanted, tolerance)
    assert (found["elements"], found["wrong"], found["index"]) == (len(wanted), wrong, index)
