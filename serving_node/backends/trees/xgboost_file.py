"""XGBoost's JSON and UBJSON. Source: the schema that XGBoost documents for its models (doc/model.schema)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from serving_node.backends.trees.forest import Floats, Forest, Tree
from serving_node.backends.trees.predictor import Predictor, exponential, grouped, identity, sigmoid, softmax
from serving_node.backends.trees.ubjson import parse
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

# the type of a key's length, which no JSON has after its first brace
_BINARY = (b"i", b"U", b"I", b"l", b"L")
_LINKS: dict[str, Callable[[Floats], Floats]] = {
    "reg:squarederror": identity,
    "reg:squaredlogerror": identity,
    "reg:absoluteerror": identity,
    "reg:pseudohubererror": identity,
    "rank:pairwise": identity,
    "rank:ndcg": identity,
    "rank:map": identity,
    "binary:logitraw": identity,
    "reg:logistic": sigmoid,
    "binary:logistic": sigmoid,
    "multi:softprob": softmax,
    "multi:softmax": softmax,
    "count:poisson": exponential,
    "reg:gamma": exponential,
    "reg:tweedie": exponential,
    "survival:cox": exponential,
    "survival:aft": exponential,
}


def read_xgboost(path: Path) -> Predictor:
    """Read a model that XGBoost saved as JSON or UBJSON.

    Raises:
        InferenceError: INVALID_ARG with what is damaged or not served.
    """
    try:
        content = path.read_bytes()
        document = parse(content) if content[:1] == b"{" and content[1:2] in _BINARY else json.loads(content)
        return _predictor(document["learner"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"'{path.name}' is no model of XGBoost, or damaged: {type(error).__name__} {error}"
        ) from error


def _predictor(learner: dict[str, Any]) -> Predictor:
    objective = str(learner["objective"]["name"])
    if objective not in _LINKS:
        raise _unserved(f"objective '{objective}'", "flotilla convert may know it")
    booster = learner["gradient_booster"]
    weights: list[float] | None = None
    if booster["name"] == "dart":
        booster, weights = booster["gbtree"], booster["weight_drop"]
    elif booster["name"] != "gbtree":
        raise _unserved(f"booster '{booster['name']}'")
    parameters = learner["learner_model_param"]
    if int(parameters.get("num_target", "1")) > 1:
        raise _unserved("models of several targets")
    features = int(parameters["num_feature"])
    if not 0 < features < 2**31:
        raise ValueError("num_feature is no number of features")
    model = booster["model"]
    trees = [_tree(tree, 1.0 if weights is None else weights[i]) for i, tree in enumerate(model["trees"])]
    groups = max(1, int(parameters["num_class"]))
    group = grouped(model["tree_info"])
    if len(group) != len(trees) or (len(group) and not 0 <= group.min() <= group.max() < groups):
        raise ValueError("tree_info does not fit the trees")
    return Predictor(
        features,
        Forest(trees, features, or_equal=False),
        group,
        _base(parameters["base_score"], objective, groups),
        _LINKS[objective],
        labels=groups > 1 or objective == "binary:logistic",
    )


def _tree(tree: dict[str, Any], weight: float) -> Tree:
    if len(tree.get("categories", ())):
        raise _unserved("splits on categories")
    left = np.asarray(tree["left_children"], np.int32)
    conditions = np.asarray(tree["split_conditions"], np.float32)
    return Tree(
        np.asarray(tree["split_indices"], np.int32),
        conditions,
        left,
        np.asarray(tree["right_children"], np.int32),
        np.asarray(tree["default_left"], np.bool_),
        conditions * np.float32(weight),
    )


def _base(text: str, objective: str, groups: int) -> Floats:
    """Return the margins that every row begins with: the file keeps what the link makes of them."""
    score = np.atleast_1d(np.asarray(json.loads(text), np.float32))
    with np.errstate(all="ignore"):
        if _LINKS[objective] is sigmoid:
            score = -np.log(1 / score - 1)
        elif _LINKS[objective] is exponential:
            score = np.log(score)
    if not np.isfinite(score).all():
        raise ValueError("base_score has no margin")
    base: Floats = np.broadcast_to(score.astype(np.float32), (groups,))
    return base


def _unserved(what: str, hint: str = "") -> InferenceError:
    text = f"the backend 'trees' does not serve XGBoost's {what}"
    return InferenceError(ErrorCode.INVALID_ARG, f"{text}; {hint}" if hint else text)
