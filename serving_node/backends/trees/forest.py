"""Trees as flat arrays, walked by all rows and trees at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

Floats = npt.NDArray[np.floating[Any]]

# cells (rows x trees) walked at once: bounds the memory of a batch
_CELLS = 1 << 18


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes of one tree, the root first. ``left`` is -1 at leaves, whose ``value`` counts; ``feature`` and
    ``threshold`` of the others say where a row goes, ``missing_left`` where a row without the value goes.

    ``zero_is_missing``: so near to 0 that LightGBM takes it for none; ``nan_is_zero``: NaN stands for 0.
    """

    feature: npt.NDArray[np.int32]
    threshold: Floats
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    missing_left: npt.NDArray[np.bool_]
    value: Floats
    zero_is_missing: npt.NDArray[np.bool_] | None = None
    nan_is_zero: npt.NDArray[np.bool_] | None = None


class Forest:
    """All trees of a model. ``or_equal``: a row goes left when its value is not above the threshold, else when below.

    Raises:
        InferenceError: INVALID_ARG, the nodes do not make trees, or ask for features beyond ``features``.
    """

    def __init__(self, trees: Sequence[Tree], features: int, *, or_equal: bool) -> None:
        sizes = [len(tree.left) for tree in trees]
        starts = np.cumsum([0, *sizes])
        self._roots = starts[:-1].astype(np.intp)
        self._depth = max((_depth(tree) for tree in trees), default=0)
        self._compare = np.less_equal if or_equal else np.less
        for tree in trees:
            inner = tree.left >= 0  # their shapes are right, or _depth has said so
            if inner.any() and not ((tree.feature[inner] >= 0) & (tree.feature[inner] < features)).all():
                raise _malformed("a split asks for a feature that there is not")
        leaves = [np.flatnonzero(tree.left < 0) for tree in trees]
        # leaves lead to themselves, so that all rows may walk as far as the deepest
        left = [tree.left.astype(np.intp) + start for tree, start in zip(trees, starts, strict=False)]
        right = [tree.right.astype(np.intp) + start for tree, start in zip(trees, starts, strict=False)]
        for own, ends, one, other in zip(starts, leaves, left, right, strict=False):
            one[ends] = other[ends] = ends + own
        self._left, self._right = _joined(left, np.intp), _joined(right, np.intp)
        self._feature = _joined([np.where(tree.left < 0, 0, tree.feature) for tree in trees], np.intp)
        self._threshold = _joined([tree.threshold for tree in trees])
        self._missing_left = _joined([tree.missing_left for tree in trees], np.bool_)
        self._value = _joined([tree.value for tree in trees])
        zero = [tree.zero_is_missing for tree in trees if tree.zero_is_missing is not None]
        nan = [tree.nan_is_zero for tree in trees if tree.nan_is_zero is not None]
        self._zero = _joined(zero, np.bool_) if zero and _joined(zero, np.bool_).any() else None
        self._nan = _joined(nan, np.bool_) if nan and _joined(nan, np.bool_).any() else None

    @property
    def memory_bytes(self) -> int:
        """Return the size of the arrays."""
        arrays = (self._left, self._right, self._feature, self._threshold, self._missing_left, self._value)
        return sum(array.nbytes for array in arrays)

    def leaves(self, rows: Floats) -> Floats:
        """Return the value of the leaf that each row reaches in each tree.

        Shapes: (rows, features) -> (rows, trees).
        """
        trees = len(self._roots)
        step = max(1, _CELLS // max(trees, 1))
        parts = [self._walk(rows[start : start + step]) for start in range(0, len(rows), step)]
        return np.concatenate(parts) if parts else np.zeros((0, trees), self._value.dtype)

    def _walk(self, rows: Floats) -> Floats:
        nodes = np.broadcast_to(self._roots, (len(rows), len(self._roots)))
        for _ in range(self._depth):
            values = np.take_along_axis(rows, self._feature[nodes], axis=1)
            missing = np.isnan(values)
            if self._nan is not None:
                zeroed = missing & self._nan[nodes]
                values = np.where(zeroed, 0, values)
                missing &= ~zeroed
            if self._zero is not None:
                missing |= (np.abs(values) <= _NEAR_ZERO) & self._zero[nodes]
            goes_left = np.where(missing, self._missing_left[nodes], self._compare(values, self._threshold[nodes]))
            nodes = np.where(goes_left, self._left[nodes], self._right[nodes])
        return self._value[nodes]


# LightGBM's kZeroThreshold
_NEAR_ZERO = np.float64(np.float32(1e-35))


def _depth(tree: Tree) -> int:
    """Return the length of the longest way to a leaf; every node is reached exactly once."""
    size = len(tree.left)
    parts = (tree.feature, tree.threshold, tree.left, tree.right, tree.missing_left, tree.value)
    if any(part.shape != (size,) for part in parts):
        raise _malformed("its nodes do not have as many parts each")
    inner = tree.left >= 0
    children = np.concatenate([tree.left[inner], tree.right[inner]])
    if size == 0 or (children < 1).any() or (children >= size).any() or len(np.unique(children)) != len(children):
        raise _malformed("its nodes do not make a tree")
    if len(children) != size - 1:
        raise _malformed("it has nodes that nothing leads to")
    depth, front = 0, np.zeros(1, np.intp)
    while (front := front[inner[front]]).size:
        front = np.concatenate([tree.left[front], tree.right[front]]).astype(np.intp)
        depth += 1
        if depth > size:
            raise _malformed("its nodes lead in a circle")
    return depth


def _joined(parts: Sequence[npt.NDArray[Any]], dtype: type | None = None) -> npt.NDArray[Any]:
    joined = np.concatenate(parts) if parts else np.zeros(0)
    return joined if dtype is None else joined.astype(dtype, copy=False)


def _malformed(why: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"the model file is damaged: {why}")
