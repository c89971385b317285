"""Libraries that form batches are code of the model's in the node's process: refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import load

CONFIG = 'backend: "onnxruntime" max_batch_size: 8 dynamic_batching { } '
SENTENCE = "model 'm' wants a shared library to form its batches, which this node does not load"
KEY = 'parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "x.so" } }'


@pytest.mark.parametrize("place", ["1/batchstrategy.so", "batchstrategy.so", ""])
async def test_a_library_that_forms_batches_is_refused(tmp_path: Path, place: str) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    if place:
        (tmp_path / place).write_bytes(b"code")
    with pytest.raises(InferenceError) as caught:
        await load(path.parent, CONFIG + ("" if place else KEY))
    assert caught.value.message == SENTENCE
    assert caught.value.code is (ErrorCode.UNSUPPORTED if place else ErrorCode.INVALID_ARG)


async def test_a_model_that_forms_no_batches_does_not_ask_for_it(tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    (tmp_path / "batchstrategy.so").write_bytes(b"code")
    model = await load(path.parent, 'backend: "onnxruntime" max_batch_size: 1')
    await model.close()
