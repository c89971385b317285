"""Scikit-learn to ONNX, compared with the estimators called directly; pickles only when somebody allows them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnxruntime
import pytest
import skops.io
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from xgboost import XGBClassifier

from conversion.errors import ConversionFailed
from tests.conversion.conftest import Converted

_generator = np.random.default_rng(0)
ROWS = _generator.normal(size=(200, 5)).astype(np.float32)
TWO = (ROWS[:, 0] > 0).astype(int)
THREE = np.digitize(ROWS[:, 0], [-0.5, 0.5])
NAMES = np.array(["a", "b", "c"])[THREE]
NUMBERS = ROWS[:, 0] * 2 + ROWS[:, 1]


def dumped(estimator: Any, wanted: Any, path: Path) -> Path:
    estimator.fit(ROWS, wanted)
    skops.io.dump(estimator, path)
    return path


@pytest.mark.parametrize(
    ("estimator", "wanted", "methods"),
    [
        (LogisticRegression(), TWO, ["predict", "predict_proba"]),
        (make_pipeline(StandardScaler(), LogisticRegression()), NAMES, ["predict", "predict_proba"]),
        (RandomForestClassifier(5), THREE, ["predict", "predict_proba"]),
        (RidgeClassifier(), TWO, ["predict", "decision_function"]),
        (LinearSVC(), TWO, ["predict", "decision_function"]),
        (SVC(), THREE, ["predict", "decision_function"]),
        (RandomForestRegressor(5), NUMBERS, ["predict"]),
        (Ridge(), np.c_[NUMBERS, -NUMBERS], ["predict"]),
        (KMeans(3), None, ["predict", "transform"]),
        (PCA(2), None, ["transform"]),
        (IsolationForest(n_estimators=10), None, ["predict", "decision_function"]),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_estimators_answer_as_in_scikit_learn(
    tmp_path: Path, converted: Callable[..., Converted], estimator: Any, wanted: Any, methods: list[str]
) -> None:
    report, target = converted(dumped(estimator, wanted, tmp_path / "model.skops"), allow_code=True)
    assert report.verdict == "pass"
    assert report.source.format == "skops"
    found = onnxruntime.InferenceSession(str(target)).run(None, {"input": ROWS})
    for answer, method in zip(found, methods, strict=True):
        expected = getattr(estimator, method)(ROWS)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(np.asarray(answer).reshape(expected.shape), expected, rtol=1e-3, atol=1e-4)
        else:
            np.testing.assert_array_equal(np.asarray(answer).reshape(expected.shape), expected)


def test_a_plain_model_is_data(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    path = dumped(make_pipeline(StandardScaler(), LogisticRegression()), NAMES, tmp_path / "model.skops")
    report, _target = converted(path)
    assert report.verdict == "pass"


def test_a_pickle_is_read_only_when_allowed(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    for name, dump in (("model.pkl", lambda one, file: file.write_bytes(pickle.dumps(one))), ("m.joblib", joblib.dump)):
        path = tmp_path / name
        dump(Ridge().fit(ROWS, NUMBERS), path)
        with pytest.raises(ConversionFailed, match=r"runs code that is in it.*--allow-code.*skops"):
            converted(path)
        report, _target = converted(path, allow_code=True)
        assert (report.verdict, report.source.format) == ("pass", "pickle")


def test_refused_code_does_not_run(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    mark = tmp_path / "ran"

    class Planted:
        def __reduce__(self) -> Any:
            return mark.touch, ()

    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Planted()))
    with pytest.raises(ConversionFailed):
        converted(path)
    assert not mark.exists()


def test_types_that_skops_does_not_know_need_the_same_word(tmp_path: Path, converted: Callable[..., Converted]) -> None:
    path = dumped(XGBClassifier(n_estimators=3), THREE, tmp_path / "model.skops")
    with pytest.raises(ConversionFailed, match=r"XGBClassifier.*--allow-code"):
        converted(path)
    report, _target = converted(path, allow_code=True)
    assert report.verdict == "pass"


@pytest.mark.parametrize(
    ("estimator", "wanted", "sentence"),
    [
        (NearestNeighbors(), None, "neither predicts nor transforms"),
        (RandomForestClassifier(3), np.c_[TWO, THREE], "no tensor of one row for each row"),
    ],
)
def test_what_has_no_conversion_is_said(
    tmp_path: Path, converted: Callable[..., Converted], estimator: Any, wanted: Any, sentence: str
) -> None:
    with pytest.raises(ConversionFailed, match=sentence):
        converted(dumped(estimator, wanted, tmp_path / "model.skops"), allow_code=True)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"a": 1}), "holds an object of type dict"),
        (pickle.dumps(Ridge()), "is not fitted"),
        (pickle.dumps(Ridge())[:40], "is no pickle that can be read here"),
        (b"\x80\x02cno_such_module\nthing\n.", "needs the Python module 'no_such_module'"),
    ],
)
def test_pickles_of_something_else_are_said(
    tmp_path: Path, converted: Callable[..., Converted], content: bytes, sentence: str
) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(content)
    with pytest.raises(ConversionFailed, match=sentence):
        converted(path, allow_code=True)
