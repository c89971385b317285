"""LightGBM's text. Source: what LightGBM 4 writes; decisions as in its include/LightGBM/tree.h."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from serving_node.backends.trees.forest import Floats, Forest, Tree
from serving_node.backends.trees.predictor import Predictor, exponential, grouped, identity, sigmoid, softmax
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

_IDENTITY = {
    "regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank", "rank_xendcg",
}  # fmt: skip
_EXPONENTIAL = {"poisson", "gamma", "tweedie"}
_CATEGORICAL, _DEFAULT_LEFT = 1, 2
# bits 2 and 3 of a decision: which values are missing
_ZERO, _NAN = 1, 2


def read_lightgbm(path: Path) -> Predictor:
    """Read a model that LightGBM saved as text.

    Raises:
        InferenceError: INVALID_ARG with what is damaged or not served.
    """
    try:
        header, *blocks = path.read_text("utf-8").split("\nTree=")
        if not blocks or "\nend of trees" not in blocks[-1]:
            raise ValueError("its trees have no end")
        return _predictor(_fields(header), [_fields(block.partition("\nend of trees")[0]) for block in blocks])
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"'{path.name}' is no model of LightGBM, or damaged: {type(error).__name__} {error}"
        ) from error


def _fields(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines() if line)


def _predictor(header: dict[str, str], blocks: list[dict[str, str]]) -> Predictor:
    features = int(header["max_feature_idx"]) + 1
    if not 0 < features < 2**31:
        raise ValueError("max_feature_idx is no number of a feature")
    groups = int(header["num_tree_per_iteration"])
    trees = [_tree(block) for block in blocks]
    objective, *options = header.get("objective", "regression").split()
    link = _link(objective, options)
    if groups < 1 or len(trees) % groups:
        raise ValueError("the number of trees does not fit the classes")
    return Predictor(
        features,
        Forest(trees, features, or_equal=True),
        grouped(np.arange(len(trees)) % groups),
        np.zeros(groups),
        link,
        divisor=max(1, len(trees) // groups) if "average_output" in header else 1,
        labels=objective in ("binary", "multiclass", "multiclassova"),
    )


def _tree(fields: dict[str, str]) -> Tree:
    if fields.get("num_cat", "0") != "0":
        raise _unserved("splits on categories")
    if fields.get("is_linear", "0") != "0":
        raise _unserved("linear trees")
    values = _numbers(fields["leaf_value"])
    inner = int(fields["num_leaves"]) - 1
    if inner < 0 or len(values) != inner + 1:
        raise ValueError("a tree has another number of leaves than it says")
    if inner == 0:
        nothing = np.full(1, -1, np.int32)
        return Tree(np.zeros(1, np.int32), np.zeros(1), nothing, nothing, np.zeros(1, np.bool_), values)
    decisions = _numbers(fields["decision_type"]).astype(np.int32)
    if (decisions & _CATEGORICAL).any():
        raise _unserved("splits on categories")
    missing = (decisions >> 2) & 3
    ends = len(values)

    def filled(array: npt.NDArray[Any], nothing: float = 0) -> npt.NDArray[Any]:
        if len(array) != inner:
            raise ValueError("a tree has another number of splits than it says")
        return np.concatenate([array, np.full(ends, nothing)])

    def children(name: str) -> npt.NDArray[Any]:
        # a negative child is a leaf, counted from -1 downwards; leaves stand behind the splits
        array = _numbers(fields[name])
        return filled(np.where(array < 0, inner - 1 - array, array), -1)

    return Tree(
        filled(_numbers(fields["split_feature"])).astype(np.int32),
        filled(_numbers(fields["threshold"])),
        children("left_child").astype(np.int32),
        children("right_child").astype(np.int32),
        filled(decisions & _DEFAULT_LEFT).astype(np.bool_),
        np.concatenate([np.zeros(inner), values]),
        filled(missing == _ZERO).astype(np.bool_),
        filled(missing != _NAN).astype(np.bool_),
    )


def _link(objective: str, options: list[str]) -> Callable[[Floats], Floats]:
    if objective in _IDENTITY and "sqrt" not in options:
        return identity
    if objective in _EXPONENTIAL:
        return exponential
    if objective == "multiclass":
        return softmax
    if objective == "cross_entropy":
        return sigmoid
    if objective in ("binary", "multiclassova"):
        given = dict(option.partition(":")[::2] for option in options)
        return functools.partial(_scaled_sigmoid, float(given["sigmoid"]))
    raise _unserved(f"objective '{' '.join([objective, *options])}'")


def _scaled_sigmoid(scale: float, margins: Floats) -> Floats:
    return sigmoid(scale * margins)


def _numbers(text: str) -> Floats:
    return np.array(text.split(), np.float64)


def _unserved(what: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, f"the backend 'trees' does not serve LightGBM's {what}")
