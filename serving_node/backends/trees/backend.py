"""The trees backend: serves models of XGBoost (JSON, UBJSON) and LightGBM (text) without either library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from serving_node.backends.arrays import ArrayInstance
from serving_node.backends.trees.lightgbm_file import read_lightgbm
from serving_node.backends.trees.predictor import Predictor
from serving_node.backends.trees.xgboost_file import read_xgboost
from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.core.backend import Device, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.core.rows import Array

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_NAMES = ("model.json", "model.ubj", "model.txt")
_INPUT, _LABEL, _PROBABILITIES, _VALUE = "input", "label", "probabilities", "variable"


class TreesInstance(ArrayInstance):
    """Walks the trees that all instances share."""

    def __init__(self, config: ModelConfig, signature: ModelSignature, predictor: Predictor) -> None:
        super().__init__(config, {tensor.name: tensor.datatype for tensor in signature.outputs})
        self._predictor = predictor

    def close(self) -> None:
        """Nothing to free."""

    def _run(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        rows = cast("npt.NDArray[np.float32]", feed[_INPUT])
        answers = self._predictor.predict(rows)
        if not self._predictor.labels:
            return [answers.astype(np.float32, copy=False)]
        made: dict[str, Array] = {
            _LABEL: answers.argmax(axis=1).astype(np.int64),
            _PROBABILITIES: answers.astype(np.float32, copy=False),
        }
        return [made[name] for name in names]


class TreesModel:
    """An opened file."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def signature(self) -> ModelSignature:
        """Return one input, and a label with probabilities for classes, else one output; as ``flotilla convert``."""
        predictor = self._predictor
        values = TensorSignature(_PROBABILITIES if predictor.labels else _VALUE, "FP32", (-1, predictor.columns))
        labels = (TensorSignature(_LABEL, "INT64", (-1,)),) if predictor.labels else ()
        return ModelSignature((TensorSignature(_INPUT, "FP32", (-1, predictor.features)),), (*labels, values))

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> TreesInstance:
        """Return an executor; it computes on the processor, whatever the device."""
        return TreesInstance(config, self.signature(), self._predictor)

    def memory_bytes(self) -> int:
        """Return the size of the trees."""
        return self._predictor.forest.memory_bytes

    def close(self) -> None:
        """Nothing to free."""


class TreesBackend:
    """See the module."""

    name = "trees"

    def open_model(self, source: ModelSource) -> TreesModel:
        """Read the model's file: ``default_model_filename``, else model.json, model.ubj or model.txt."""
        wanted = source.config.default_model_filename
        path = next(
            (source.directory / name for name in ([wanted] if wanted else _NAMES) if _is_file(source, name)), None
        )
        if path is None:
            raise InferenceError(
                ErrorCode.INVALID_ARG, f"model '{source.name}' has no file {wanted or ' or '.join(_NAMES)}"
            )
        return TreesModel(read_xgboost(path) if _is_json(path) else read_lightgbm(path))


def backend(options: Mapping[str, str], calls: InnerCalls) -> TreesBackend:
    """Return the backend."""
    return TreesBackend()


def _is_file(source: ModelSource, name: str) -> bool:
    return (source.directory / name).is_file()


def _is_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] == b"{"
