"""Scikit-learn's estimators to ONNX: from skops files, which are data, or from pickles, which are code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conversion import onnx_file
from conversion.errors import ConversionFailed, first_sentence, require
from conversion.samples import Array, InputSpec
from conversion.sources import Source
from conversion.trees import INPUT, INSTALL, LightgbmModel, XgboostModel, column_notes, table_input

if TYPE_CHECKING:
    import onnx

# The newest that skl2onnx writes for every estimator, and every ONNX Runtime of the last years reads.
_OPSETS = {"": 18, "ai.onnx.ml": 3}


class Estimator:
    """A fitted estimator or pipeline over rows of numbers."""

    def __init__(self, estimator: Any, warned: tuple[str, ...]) -> None:
        self._estimator = estimator
        self._warned = warned
        self._methods = _methods(estimator)
        self._features = getattr(estimator, "n_features_in_", None)
        if self._features is None:
            raise ConversionFailed(
                f"{type(estimator).__name__} is not fitted, or does not say how many columns it takes."
            )
        self._columns: list[tuple[int, ...]] = []

    def to_onnx(self) -> onnx.ModelProto:
        """Return the estimator as ONNX with one input ``input``, FP32 [batch, features]."""
        skl2onnx = require("skl2onnx", "Converting scikit-learn models", INSTALL)
        types = require("skl2onnx.common.data_types", "Converting scikit-learn models", INSTALL)
        initial = [(INPUT, types.FloatTensorType([None, self._features]))]
        options = {id(self._estimator): {"zipmap": False}} if self._methods[0] == "predict" else None

        def export(options: Any) -> onnx.ModelProto:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what scikit-learn will remove one day
                model: onnx.ModelProto = skl2onnx.to_onnx(
                    self._estimator, initial_types=initial, options=options, target_opset=_OPSETS
                )
            return model

        try:
            try:
                model = export(options)
            except NameError:  # an estimator that never answers dictionaries does not know the option
                model = export(None)
        except Exception as error:
            name = type(self._estimator).__name__
            raise ConversionFailed(f"{name} cannot be converted to ONNX: {first_sentence(error)}") from error
        self._columns = [answer.shape[1:] for answer in onnx_file.tidy_table_model(model, "the converted model")]
        return model

    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the one input."""
        assert self._features is not None
        return table_input(self._features)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return what the estimator predicts or makes of the rows."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the names of columns
            answers = [getattr(self._estimator, method)(inputs[INPUT]) for method in self._methods]
        if any(isinstance(answer, list) for answer in answers):
            raise ConversionFailed("The estimator predicts several targets at once, for which there is no conversion.")
        return [_shaped(np.asarray(answer), index, self._columns) for index, answer in enumerate(answers)]

    def notes(self) -> tuple[str, ...]:
        """Return the order of the columns, and what scikit-learn warned about when it read the file."""
        return (*column_notes(tuple(getattr(self._estimator, "feature_names_in_", ()))), *self._warned)


def read_skops(path: Path, *, allow_code: bool) -> Source:
    """Read an estimator from a skops file; types that skops does not know as harmless need ``allow_code``.

    Raises:
        ConversionFailed: damaged, or it needs code that was not allowed, or what is in it has no conversion.
    """
    skops = require("skops.io", "Reading skops files", INSTALL)
    try:
        unknown = skops.get_untrusted_types(file=path)
        if unknown and not allow_code:
            raise ConversionFailed(
                f"{path.name} names types that skops does not know as harmless ({', '.join(unknown[:5])}); "
                "if you trust the file, add --allow-code."
            )
        return _source_of(*_warned(lambda: skops.load(path, trusted=unknown)))
    except (ConversionFailed, MemoryError):
        raise
    except Exception as error:
        raise ConversionFailed(f"{path.name} cannot be read by skops: {first_sentence(error)}") from error


def read_pickle(path: Path) -> Source:
    """Read an estimator from a pickle or a joblib file. This runs code from the file.

    Raises:
        ConversionFailed: damaged, a module is missing, or what is in it has no conversion.
    """
    joblib = require("joblib", "Reading pickles", INSTALL)
    try:
        loaded, warned = _warned(lambda: joblib.load(path))
    except ModuleNotFoundError as error:
        raise ConversionFailed(f"{path.name} needs the Python module '{error.name}', which is not installed.") from None
    except MemoryError:
        raise
    except Exception as error:
        raise ConversionFailed(f"{path.name} is no pickle that can be read here: {first_sentence(error)}") from error
    return _source_of(loaded, warned)


def _source_of(loaded: Any, warned: tuple[str, ...]) -> Source:
    library = type(loaded).__module__.partition(".")[0]
    if library == "xgboost":
        return XgboostModel(loaded.get_booster() if hasattr(loaded, "get_booster") else loaded)
    if library == "lightgbm":
        return LightgbmModel(getattr(loaded, "booster_", loaded), tuple(map(str, getattr(loaded, "classes_", ()))))
    if not hasattr(loaded, "get_params"):
        raise ConversionFailed(
            f"The file holds an object of type {type(loaded).__name__}, not an estimator of scikit-learn."
        )
    return Estimator(loaded, warned)


def _warned(load: Any) -> tuple[Any, tuple[str, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = load()
    texts = {first_sentence(Exception(one.message)) for one in caught if "Version" in one.category.__name__}
    return loaded, tuple(sorted(texts))


def _methods(estimator: Any) -> list[str]:
    base = require("sklearn.base", "Converting scikit-learn models", INSTALL)
    if base.is_classifier(estimator):
        scores = next((name for name in ("predict_proba", "decision_function") if hasattr(estimator, name)), None)
        return ["predict", scores] if scores else ["predict"]
    if base.is_clusterer(estimator) and hasattr(estimator, "predict"):
        return ["predict", "transform"]
    if base.is_outlier_detector(estimator):
        return ["predict", "decision_function"]
    if base.is_regressor(estimator):
        return ["predict"]
    if hasattr(estimator, "transform"):
        return ["transform"]
    raise ConversionFailed(f"{type(estimator).__name__} neither predicts nor transforms rows that it has not seen.")


def _shaped(answer: Array, index: int, columns: list[tuple[int, ...]]) -> Array:
    """Return the answer as ONNX lays it out: one value for each row is a column, two-sided for the scores of two."""
    wanted = columns[index] if index < len(columns) else ()
    if answer.ndim == 1 and wanted == (1,):
        return answer.reshape(-1, 1)
    if answer.ndim == 1 and wanted == (2,):
        return np.stack([np.negative(answer), answer], axis=1)
    if answer.ndim == 2 and answer.shape[1] == 1 and wanted == ():
        return answer.reshape(-1)
    return answer
