"""Small ONNX files for tests, made in code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR = 9


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
) -> Path:
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def tensor(name: str, element: int, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def save_mlp(path: Path, *, features: int = 16, hidden: int = 32, classes: int = 10, seed: int = 0) -> Path:
    """Input ``x`` FP32 [N, features], output ``y`` FP32 [N, classes]."""
    generator = np.random.default_rng(seed)
    weights = {
        "w0": generator.standard_normal((features, hidden)).astype(np.float32),
        "w1": generator.standard_normal((hidden, classes)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"]),
    ]
    float_ = TensorProto.FLOAT
    return save(path, nodes, [tensor("x", float_, ["N", features])], [tensor("y", float_, ["N", classes])], weights)


def save_add_sub(path: Path, element: int = TensorProto.INT32, rows: int | str = "N") -> Path:
    """Triton's ``simple``: INPUT0, INPUT1 [N, 16] -> OUTPUT0 (sum), OUTPUT1 (difference)."""
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    return save(
        path,
        nodes,
        [tensor(name, element, [rows, 16]) for name in ("INPUT0", "INPUT1")],
        [tensor(name, element, [rows, 16]) for name in ("OUTPUT0", "OUTPUT1")],
    )


def save_identity(path: Path, element: int, shape: list[int | str]) -> Path:
    """Input ``x`` -> output ``y``, of any element type and shape."""
    return save(
        path, [helper.make_node("Identity", ["x"], ["y"])], [tensor("x", element, shape)], [tensor("y", element, shape)]
    )


def save_gather(path: Path) -> Path:
    """Fails at run time for an index above 3: input ``i`` INT64 [N, 1] -> ``y`` FP32 [N, 1]."""
    return save(
        path,
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        [tensor("i", TensorProto.INT64, ["N", 1])],
        [tensor("y", TensorProto.FLOAT, ["N", 1])],
        {"table": np.arange(4, dtype=np.float32)},
    )


def save_accumulator(path: Path, *, rows: int | str = "N", growing: bool = False) -> Path:
    """Sums, or with ``growing`` lines up, what it got: ``x`` and ``old`` FP32 [N, 1 or M] -> ``y`` and ``new``.

    ``y`` is x times the control READY FP32 [N, 1], plus the control START.
    """
    float_ = TensorProto.FLOAT
    width: int | str = "M" if growing else 1
    join = helper.make_node("Concat", ["old", "x"], ["new"], axis=1 if rows == "N" else 0)
    nodes = [
        join if growing else helper.make_node("Add", ["old", "x"], ["new"]),
        helper.make_node("Mul", ["x", "READY"], ["z"]),
        helper.make_node("Add", ["z", "START"], ["y"]),
    ]
    dims = [rows] if rows == "N" else []
    inputs = [tensor(name, float_, [*dims, 1]) for name in ("x", "READY", "START")]
    outputs = [tensor("y", float_, [*dims, 1]), tensor("new", float_, [*dims, "K" if growing else 1])]
    return save(path, nodes, [*inputs, tensor("old", float_, [*dims, width])], outputs)
