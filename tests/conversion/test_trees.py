"""XGBoost and LightGBM to ONNX, compared with the libraries called directly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import onnxruntime
import pytest
import xgboost

from conversion.errors import ConversionFailed
from tests.conversion.conftest import Converted

_generator = np.random.default_rng(0)
ROWS = _generator.normal(size=(300, 5)).astype(np.float32)
NUMBER = ROWS[:, 0] * 2 + ROWS[:, 1]
CLASSES = {2: (ROWS[:, 0] > 0).astype(int), 3: np.digitize(ROWS[:, 0], [-0.5, 0.5])}


def targets(objective: str) -> Any:
    if "multi" in objective:
        return CLASSES[3]
    if objective.startswith(("binary", "rank", "reg:logistic", "lambdarank")):
        return CLASSES[2]
    return np.abs(NUMBER) + 0.1


def boosted(path: Path, objective: str, **options: Any) -> tuple[xgboost.Booster, Path]:
    with_holes = np.where(_generator.random(ROWS.shape) < 0.1, np.nan, ROWS)
    classes = {"num_class": 3} if objective.startswith("multi") else {}
    data = xgboost.DMatrix(with_holes, label=targets(objective), feature_names=list("vwxyz"))
    booster = xgboost.train({"objective": objective, "max_depth": 4, "nthread": 1, **classes, **options}, data, 8)
    booster.save_model(path)
    return booster, path


def light(path: Path, objective: str, **options: Any) -> tuple[lightgbm.Booster, Path]:
    parameters = {"objective": objective, "num_leaves": 7, "verbose": -1, "num_threads": 1, **options}
    if "multi" in objective:
        parameters["num_class"] = 3
    group = [100, 200] if objective == "lambdarank" else None
    booster = lightgbm.train(parameters, lightgbm.Dataset(ROWS, label=targets(objective), group=group), 8)
    booster.save_model(path)
    return booster, path


def asked(target: Path, rows: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"input": rows}))


@pytest.mark.parametrize(
    "objective",
    [
        "binary:logistic",
        "binary:logitraw",
        "count:poisson",
        "multi:softmax",
        "multi:softprob",
        "rank:pairwise",
        "reg:gamma",
        "reg:logistic",
        "reg:squarederror",
        "survival:cox",
    ],
)
def test_xgboost_answers_as_its_library(tmp_path: Path, converted: Callable[..., Converted], objective: str) -> None:
    booster, path = boosted(tmp_path / "model.json", objective)
    report, target = converted(path)
    assert report.verdict == "pass"
    rows = np.where(_generator.random(ROWS.shape) < 0.1, np.nan, ROWS).astype(np.float32)
    wanted = booster.predict(xgboost.DMatrix(rows, feature_names=list("vwxyz")))
    found = asked(target, rows)
    if objective == "multi:softmax":
        np.testing.assert_array_equal(found[0], wanted)
    elif objective == "binary:logistic":
        np.testing.assert_array_equal(found[0], wanted > 0.5)
        np.testing.assert_allclose(found[1][:, 1], wanted, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_allclose(found[-1].reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", ["binary", "lambdarank", "multiclass", "poisson", "regression"])
def test_lightgbm_answers_as_its_library(tmp_path: Path, converted: Callable[..., Converted], objective: str) -> None:
    booster, path = light(tmp_path / "model.txt", objective)
    report, target = converted(path)
    assert report.verdict == "pass"
    wanted, found = np.asarray(booster.predict(ROWS)), asked(target, ROWS)
    if objective == "binary":
        np.testing.assert_array_equal(found[0], wanted > 0.5)
        np.testing.assert_allclose(found[1][:, 1], wanted, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_allclose(found[-1].reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)


def test_binary_and_text_json_are_one_model(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    _booster, path = boosted(tmp_path / "model.ubj", "reg:squarederror")
    report, _target = converted(path)
    assert (report.source.format, report.verdict) == ("xgboost", "pass")
    assert report.notes == ("The columns of 'input' are, in this order: v, w, x, y, z.",)


def test_every_dimension_is_declared_as_it_comes(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    for make, name in ((boosted, "binary:logistic"), (light, "binary")):
        _booster, path = make(tmp_path / "model", name)
        _report, target = converted(path)
        graph = onnx.load(target).graph
        shapes = [
            [one.dim_param or one.dim_value for one in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.output)
        ]
        assert shapes == [["batch", 5], ["batch"], ["batch", 2]]


def test_a_wrong_conversion_is_found(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    """The converter takes one-against-all for softmax; only the comparison sees it."""
    _booster, path = light(tmp_path / "model.txt", "multiclassova")
    report, _target = converted(path)
    assert report.verdict == "fail"
    assert {output.name: output.verdict.value for output in report.outputs}["probabilities"] == "fail"


@pytest.mark.parametrize(
    ("objective", "options", "sentence"),
    [
        ("reg:squarederror", {"booster": "dart"}, "booster 'dart' has no conversion"),
        ("reg:squarederror", {"booster": "gblinear"}, "booster 'gblinear' has no conversion"),
        ("binary:hinge", {}, "objective 'binary:hinge' is not one of those converted"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # gblinear knows no max_depth
def test_what_has_no_conversion_is_named(
    tmp_path: Path, converted: Callable[..., Converted], objective: str, options: dict[str, Any], sentence: str
) -> None:
    _booster, path = boosted(tmp_path / "model.json", objective, **options)
    with pytest.raises(ConversionFailed, match=sentence):
        converted(path)


def test_trees_that_split_on_categories_are_refused(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    rows = np.c_[ROWS, _generator.integers(0, 4, 300)]
    data = xgboost.DMatrix(rows, label=rows[:, 5], feature_types=["q"] * 5 + ["c"], enable_categorical=True)
    path = tmp_path / "model.json"
    xgboost.train({"max_cat_to_onehot": 1}, data, 3).save_model(path)
    with pytest.raises(ConversionFailed, match="split on categories"):
        converted(path)


def test_cut_files_are_said(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    for make, name, sentence in (
        (boosted, "model.json", "cut or damaged: XGBoost cannot read it"),
        (light, "model.txt", "is cut: its trees have no end"),
    ):
        _booster, path = make(tmp_path / name, "reg:squarederror" if make is boosted else "regression")
        path.write_bytes(path.read_bytes()[:3000])
        with pytest.raises(ConversionFailed, match=sentence):
            converted(path)
