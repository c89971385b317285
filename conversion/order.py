"""What a conversion is asked to do; travels to its process as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from serving_node.contract.conversion import Tolerance
from serving_node.contract.messages import Message


class Step(StrEnum):
    """One change of the file."""

    ONNX = "onnx"
    SIMPLIFIED = "simplified"
    FP16 = "fp16"


DEFAULT_TOLERANCES = {
    Step.ONNX: Tolerance(relative=1e-3, absolute=1e-5),
    Step.SIMPLIFIED: Tolerance(relative=1e-4, absolute=1e-6),
    Step.FP16: Tolerance(relative=1e-2, absolute=1e-3),
}
"""Of the step that loses most: FP16 keeps 11 bits of each number."""

BATCHES = (1, 7)
"""Rows of the random samples, unless somebody says otherwise."""
TABLE_BATCHES = (1, 7, 1000)
"""The same for models over rows of numbers: they are fast, and few rows reach few leaves of a tree."""


@dataclass(frozen=True, slots=True)
class Order(Message):
    """Convert ``source`` by ``steps`` (an empty tuple: to ONNX) into the new file ``target``.

    ``relative`` and ``absolute`` None: the default tolerance of the steps. ``samples`` is an .npz file; without one,
    random inputs of ``batches`` rows (empty: by the kind of model) are drawn with ``seed``, whole numbers from ``low``
    to ``high``. ``allow_code``: the person who asks trusts the file.
    """

    source: str
    target: str
    steps: tuple[Step, ...] = ()
    relative: float | None = None
    absolute: float | None = None
    samples: str = ""
    batches: tuple[int, ...] = ()
    seed: int = 0
    low: int = 0
    high: int = 9
    dynamic_size: int = 8
    keep_io_types: bool = True
    allow_code: bool = False


def tolerance_of(order: Order) -> Tolerance:
    """Return the tolerance that the outputs are judged by."""
    lossiest = next((step for step in (Step.FP16, Step.ONNX) if step in order.steps), Step.SIMPLIFIED)
    default = DEFAULT_TOLERANCES[lossiest]
    return Tolerance(
        default.relative if order.relative is None else order.relative,
        default.absolute if order.absolute is None else order.absolute,
    )
