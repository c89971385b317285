"""Small ONNX models, made in code."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def network(*, scale: float = 1.0) -> onnx.ModelProto:
    """probabilities, best = f(x): FP32[batch, 8] -> FP32[batch, 3] and INT64[batch], with work for a simplifier."""
    generator = np.random.default_rng(0)
    weights = numpy_helper.from_array((scale * generator.normal(size=(8, 3))).astype(np.float32), "w")
    half = numpy_helper.from_array(np.array([0.5], np.float32), "half")
    nodes = [
        helper.make_node("Add", ["half", "half"], ["one"]),  # a constant
        helper.make_node("Mul", ["x", "one"], ["same"]),
        helper.make_node("Identity", ["same"], ["kept"]),
        helper.make_node("Identity", ["kept"], ["unused"]),
        helper.make_node("MatMul", ["kept", "w"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        helper.make_node("ArgMax", ["logits"], ["best"], axis=-1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("best", TensorProto.INT64, ["batch"]),
        ],
        [weights, half],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def large_sum() -> onnx.ModelProto:
    """y = 70000 * x, which FP16 cannot hold: FP32[batch] -> FP32[batch]."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "large"], ["far"]), helper.make_node("Add", ["far", "large"], ["y"])],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"])],
        [numpy_helper.from_array(np.array([60000.0], np.float32), "large")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def integers() -> onnx.ModelProto:
    """y = x + x: INT64[batch] -> INT64[batch]."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "integers",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["batch"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
