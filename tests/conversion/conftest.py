"""Conversions in the test's own process: quick, and an error keeps its traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conversion.convert import convert
from conversion.order import Order, Step
from serving_node.contract.conversion import ConversionReport

Converted = tuple[ConversionReport, Path]


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Converted]:
    """Return a function that converts a file: report, and the path of the result."""

    def run(source: Path, *steps: str, **options: Any) -> Converted:
        target = tmp_path / "converted.onnx"
        order = Order(str(source), str(target), tuple(map(Step, steps)), **options)
        return convert(order, lambda _sentence: None), target

    return run
