"""Small real ONNX models, made in code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write_mlp(path: Path, *, seed: int, width: int = 16, hidden: int = 32, classes: int = 4, opset: int = 17) -> Path:
    """Write x[batch, width] -> y[batch, classes]: two layers with random weights."""
    draw = np.random.default_rng(seed)
    weights = {
        "w1": draw.standard_normal((width, hidden)).astype(np.float32),
        "b1": draw.standard_normal(hidden).astype(np.float32),
        "w2": draw.standard_normal((hidden, classes)).astype(np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h"]),
            helper.make_node("Add", ["h", "b1"], ["a"]),
            helper.make_node("Relu", ["a"], ["r"]),
            helper.make_node("MatMul", ["r", "w2"], ["y"]),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path
