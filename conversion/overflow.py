"""Values inside a model that FP16 cannot hold.

ONNX Runtime's CPU provider computes FP16 operators in FP32 and rounds only what it shows, so that answers compared
there hide an overflow that a GPU has. Shown one by one, the inner values tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from conversion.onnx_file import Session, packed
from conversion.samples import Array
from serving_node.contract.conversion import OutputComparison

if TYPE_CHECKING:
    import onnx


def overflows(
    before: onnx.ModelProto, after: onnx.ModelProto, inputs: Mapping[str, Array]
) -> tuple[OutputComparison, ...]:
    """Return the inner values that are finite in ``before`` and infinite in ``after``, as failed comparisons.

    Raises:
        ConversionFailed: the runtime cannot show the inner values.
    """
    names = _inner(before) & _inner(after)
    shown = [name for node in before.graph.node for name in node.output if name in names]
    if not shown:
        return ()
    found = []
    for name, first, second in zip(shown, _values(before, shown, inputs), _values(after, shown, inputs), strict=True):
        if second.dtype != np.float16 or first.shape != second.shape:
            continue
        lost = int(np.count_nonzero(np.isfinite(first) & ~np.isfinite(second)))
        if lost:
            found.append(
                OutputComparison(f"{name} (inside)", "FP16", elements=first.size, differing=lost, non_finite=lost)
            )
    return tuple(found)


def _inner(model: onnx.ModelProto) -> set[str]:
    outputs = {value.name for value in model.graph.output}
    return {name for node in model.graph.node for name in node.output if name} - outputs


def _values(model: onnx.ModelProto, names: list[str], inputs: Mapping[str, Array]) -> list[Array]:
    shown = type(model)()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    for name in names:
        shown.graph.output.add(name=name)  # the runtime finds out the type
    return Session(packed(shown), "the model with its inner values").run(inputs)
