"""From leaves to answers: sums of each class, then what the objective makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from serving_node.backends.trees.forest import Floats, Forest


def identity(margins: Floats) -> Floats:
    """Return what came."""
    return margins


def sigmoid(margins: Floats) -> Floats:
    """Return 1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        shares: Floats = 1 / (1 + np.exp(-margins))
    return shares


def exponential(margins: Floats) -> Floats:
    """Return exp(x), infinity where that is too large."""
    with np.errstate(over="ignore"):
        powers: Floats = np.exp(margins)
    return powers


def softmax(margins: Floats) -> Floats:
    """Return shares of each row that sum to 1."""
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


@dataclass(frozen=True, slots=True)
class Predictor:
    """A whole model. ``group`` is the class that each tree adds to, ``base`` what each class begins with.

    ``divisor`` is more than 1 where trees are averaged. ``labels``: there are classes; one class then means two.
    """

    features: int
    forest: Forest
    group: npt.NDArray[np.intp]
    base: Floats
    link: Callable[[Floats], Floats] = identity
    divisor: int = 1
    labels: bool = False

    @property
    def columns(self) -> int:
        """Return how many numbers a row gets."""
        return 2 if self.labels and len(self.base) == 1 else len(self.base)

    def predict(self, rows: npt.NDArray[np.float32]) -> Floats:
        """Return what the library calls a prediction. Shapes: (rows, features) -> (rows, columns)."""
        leaves = self.forest.leaves(rows)
        margins = np.empty((len(rows), len(self.base)), self.base.dtype)
        margins[:] = self.base
        # one tree after the other, as the libraries add them: another order has other last digits
        for tree, group in enumerate(self.group):
            margins[:, group] += leaves[:, tree]
        if self.divisor > 1:
            margins /= self.divisor
        answers = self.link(margins)
        if self.labels and len(self.base) == 1:
            answers = np.concatenate([1 - answers, answers], axis=1)
        return answers


def grouped(groups: Any) -> npt.NDArray[np.intp]:
    """Return the classes of trees as an index."""
    return np.asarray(groups, dtype=np.intp)
