"""Sample inputs from a model's signature, so that nobody starts from an empty box. Pure and repeatable."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_SHOWN = 64
MOST_ELEMENTS = 2_000_000
_FLOATS = {"FP16", "FP32", "FP64", "BF16"}


@dataclass(frozen=True, slots=True)
class SampleInput:
    """One tensor of the form: its shape with small numbers for dynamic dimensions, and values when they are few.

    ``fill`` is typed (``data`` has JSON), random, zeros or ones.
    """

    name: str
    datatype: str
    signature: tuple[int, ...]
    shape: tuple[int, ...]
    data: str
    fill: str

    @property
    def shape_text(self) -> str:
        """The shape as the form takes it."""
        return ", ".join(str(dimension) for dimension in self.shape)


def sample_inputs(signature: Mapping[str, Any] | None) -> list[SampleInput]:
    """Return a sample for each input of a signature document (contract ModelSignature as JSON)."""
    samples = []
    for tensor in (signature or {}).get("inputs", []):
        original = tuple(int(dimension) for dimension in tensor["shape"])
        shape = tuple(_dimension(index, dimension) for index, dimension in enumerate(original))
        few = math.prod(shape) <= MOST_SHOWN
        data = json.dumps(values(tensor["datatype"], shape, "random")) if few else ""
        samples.append(
            SampleInput(tensor["name"], tensor["datatype"], original, shape, data, "typed" if few else "random")
        )
    return samples


def _dimension(index: int, dimension: int) -> int:
    """Return a small size for a dynamic dimension: one row, eight of anything else."""
    if dimension >= 0:
        return dimension
    return 1 if index == 0 else 8


def values(datatype: str, shape: tuple[int, ...], fill: str, seed: int = 7) -> list[Any]:
    """Return flat values of a datatype: random ones are the same for the same seed."""
    count = math.prod(shape)
    source = random.Random(seed)  # noqa: S311  sample data, not a secret
    if fill in {"zeros", "ones"}:
        one = {"zeros": 0, "ones": 1}[fill]
        return [str(one) if datatype == "BYTES" else bool(one) if datatype == "BOOL" else one] * count
    if datatype in _FLOATS:
        return [round(source.uniform(-1, 1), 4) for _number in range(count)]
    if datatype == "BYTES":
        return [f"sample {number}" for number in range(count)]
    if datatype == "BOOL":
        return [source.random() < 0.5 for _number in range(count)]
    return [source.randrange(0, 100) for _number in range(count)]
