"""XGBoost's and LightGBM's models to ONNX. Their own files (JSON, UBJSON, text) are data: reading them runs no code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from conversion import onnx_file
from conversion.errors import ConversionFailed, first_sentence, require
from conversion.samples import Array, InputSpec

if TYPE_CHECKING:
    import onnx

INSTALL = "flotilla[convert,convert-trees,onnx]"
INPUT = "input"
_LABELLED = {"binary:logistic", "multi:softprob", "multi:softmax"}
_PLAIN = {
    "reg:squarederror",
    "reg:squaredlogerror",
    "reg:absoluteerror",
    "reg:pseudohubererror",
    "count:poisson",
    "reg:gamma",
    "reg:tweedie",
}
# The converter knows these not, or takes them for classes: exported as sums of leaves, then the link is added.
_LINKS = {
    "rank:pairwise": "",
    "rank:ndcg": "",
    "rank:map": "",
    "binary:logitraw": "",
    "reg:logistic": "Sigmoid",
    "survival:cox": "Exp",
    "survival:aft": "Exp",
}
_LIGHTGBM_LABELLED = ("binary", "multiclass")


class XgboostModel:
    """A booster of XGBoost: a label and probabilities for classes, else one column."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster
        self._xgboost = require("xgboost", "Reading XGBoost models", INSTALL)
        self._document: dict[str, Any] = json.loads(booster.save_raw("json"))
        self._objective = str(self._document["learner"]["objective"]["name"])
        self._names = tuple(booster.feature_names or ())
        _require_plain_trees(self._document["learner"])
        if self._objective not in _LABELLED | _PLAIN | _LINKS.keys():
            known = ", ".join(sorted(_LABELLED | _PLAIN | _LINKS.keys()))
            raise ConversionFailed(f"XGBoost's objective '{self._objective}' is not one of those converted: {known}.")

    def to_onnx(self) -> onnx.ModelProto:
        """Return the booster as ONNX with one input ``input``, FP32 [batch, features]."""
        onnxmltools = require("onnxmltools", "Converting XGBoost models", INSTALL)
        types = require("onnxmltools.convert.common.data_types", "Converting XGBoost models", INSTALL)
        initial = [(INPUT, types.FloatTensorType([None, self._booster.num_features()]))]
        try:
            model: onnx.ModelProto = onnxmltools.convert_xgboost(self._plain_booster(), initial_types=initial)
        except Exception as error:
            raise ConversionFailed(f"XGBoost's model cannot be converted: {first_sentence(error)}") from error
        if link := _LINKS.get(self._objective):
            _append(model, link)
        onnx_file.tidy_table_model(model, "the converted model")
        return model

    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the one input; values may be missing (NaN)."""
        return table_input(self._booster.num_features(), may_miss=True)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return what the booster predicts."""
        rows = self._xgboost.DMatrix(inputs[INPUT])
        if self._objective.startswith("multi:"):
            margins = self._booster.predict(rows, output_margin=True, validate_features=False)
            return _labelled(_softmax(margins))
        predicted = self._booster.predict(rows, validate_features=False)
        return _labelled(predicted) if self._objective in _LABELLED else [_column(predicted)]

    def notes(self) -> tuple[str, ...]:
        """Return the order of the columns, when the model names them."""
        return column_notes(self._names)

    def _plain_booster(self) -> Any:
        """Return a copy without names of features, and with an objective that the converter takes for what it is."""
        document = json.loads(json.dumps(self._document))
        learner = document["learner"]
        learner["feature_names"] = learner["feature_types"] = []
        if self._objective == "multi:softmax":  # its own converter shows margins for probabilities
            learner["objective"]["name"] = "multi:softprob"
        if self._objective in _LINKS:
            scores = json.loads(learner["learner_model_param"]["base_score"])
            margins = [_margin(score, _LINKS[self._objective]) for score in np.atleast_1d(scores).tolist()]
            learner["learner_model_param"]["base_score"] = json.dumps(margins)
            learner["objective"] = {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}}
        booster = self._xgboost.Booster()
        booster.load_model(bytearray(json.dumps(document).encode()))
        return booster


class LightgbmModel:
    """A booster of LightGBM: a label and probabilities for classes, else one column.

    ``classes``: their names, when an estimator around the booster knows them.
    """

    def __init__(self, booster: Any, classes: tuple[str, ...] = ()) -> None:
        self._booster = booster
        self._classes = classes
        self._objective = str(booster.dump_model(num_iteration=1).get("objective", "regression"))
        names = tuple(booster.feature_name())
        self._names = () if names == tuple(f"Column_{index}" for index in range(len(names))) else names

    def to_onnx(self) -> onnx.ModelProto:
        """Return the booster as ONNX with one input ``input``, FP32 [batch, features]."""
        onnxmltools = require("onnxmltools", "Converting LightGBM models", INSTALL)
        types = require("onnxmltools.convert.common.data_types", "Converting LightGBM models", INSTALL)
        initial = [(INPUT, types.FloatTensorType([None, self._booster.num_feature()]))]
        try:
            model: onnx.ModelProto = onnxmltools.convert_lightgbm(self._booster, initial_types=initial, zipmap=False)
        except Exception as error:
            raise ConversionFailed(f"LightGBM's model cannot be converted: {first_sentence(error)}") from error
        onnx_file.tidy_table_model(model, "the converted model")
        return model

    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the one input."""
        return table_input(self._booster.num_feature())

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return what the booster predicts."""
        predicted = np.asarray(self._booster.predict(inputs[INPUT]))
        return _labelled(predicted) if self._objective.startswith(_LIGHTGBM_LABELLED) else [_column(predicted)]

    def notes(self) -> tuple[str, ...]:
        """Return the order of the columns and of the classes, when the model names them."""
        if not self._classes:
            return column_notes(self._names)
        return (*column_notes(self._names), f"The labels are numbers, from 0 on, of: {', '.join(self._classes)}.")


def read_xgboost(path: Path) -> XgboostModel:
    """Read XGBoost's JSON or UBJSON.

    Raises:
        ConversionFailed: it is damaged, or its objective has no conversion.
    """
    xgboost = require("xgboost", "Reading XGBoost models", INSTALL)
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(path.read_bytes()))
    except Exception as error:
        raise ConversionFailed(f"{path.name} is cut or damaged: XGBoost cannot read it.") from error
    return XgboostModel(booster)


def read_lightgbm(path: Path) -> LightgbmModel:
    """Read LightGBM's text.

    Raises:
        ConversionFailed: it is damaged.
    """
    lightgbm = require("lightgbm", "Reading LightGBM models", INSTALL)
    text = path.read_text("utf-8", "replace")
    # cut text is taken for a model with fewer trees, and the library ends the process when a tree is cut
    if "\nend of trees" not in text:
        raise ConversionFailed(f"{path.name} is cut: its trees have no end.")
    try:
        return LightgbmModel(lightgbm.Booster(model_str=text))
    except Exception as error:
        raise ConversionFailed(f"{path.name} is damaged: LightGBM cannot read it.") from error


def table_input(features: int, *, may_miss: bool = False) -> tuple[InputSpec, ...]:
    """Return the input of a model over rows of numbers."""
    return (InputSpec(INPUT, "FP32", (onnx_file.BATCH, features), may_miss=may_miss),)


def column_notes(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return a sentence that says which column is which."""
    if not names:
        return ()
    listed = ", ".join(names[:50]) + (" ..." if len(names) > 50 else "")
    return (f"The columns of '{INPUT}' are, in this order: {listed}.",)


def _require_plain_trees(learner: Mapping[str, Any]) -> None:
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        raise ConversionFailed(f"XGBoost's booster '{kind}' has no conversion, only 'gbtree' has.")
    if any(tree.get("categories") for tree in learner["gradient_booster"]["model"]["trees"]):
        raise ConversionFailed("XGBoost's trees split on categories, for which there is no conversion.")
    if int(learner["learner_model_param"].get("num_target", "1")) > 1:
        raise ConversionFailed("XGBoost's model predicts several targets at once, for which there is no conversion.")


def _append(model: onnx.ModelProto, operator: str) -> None:
    output = model.graph.output[0]
    inner = f"{output.name}_margin"
    for node in model.graph.node:
        node.output[:] = [inner if name == output.name else name for name in node.output]
    model.graph.node.add(op_type=operator, input=[inner], output=[output.name])
    if not any(one.domain == "" for one in model.opset_import):
        model.opset_import.add(domain="", version=13)


def _margin(score: float, link: str) -> float:
    if link == "Sigmoid":
        return math.log(score / (1 - score))
    return math.log(score) if link == "Exp" else score


def _softmax(margins: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    shares: npt.NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _labelled(shares: npt.NDArray[Any]) -> list[Array]:
    if shares.ndim == 1:
        shares = np.stack([1 - shares, shares], axis=1)
    return [shares.argmax(axis=1).astype(np.int64), shares]


def _column(predicted: npt.NDArray[Any]) -> Array:
    return predicted.reshape(len(predicted), -1)
