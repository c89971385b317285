"""Small models for measuring, as our node and the reference server take them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from serving_node.backends.onnxruntime.settings import prepare_environment

prepare_environment()
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MAX_BATCH = 64
MLP_SIZES = (512, 1024, 1024, 1024, 10)
SERVED = ("add_sub", "mlp", "echo")
_TENSOR = 'name: "{}" data_type: TYPE_FP32 dims: [ {} ]'

# What the reference's Python backend runs; it has no ONNX Runtime here, so numpy computes the same.
_PYTHON = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "weights.npz")
        self.weights = [np.load(path)[str(i)] for i in range(4)] if os.path.exists(path) else []

    def execute(self, requests):
        given = [[tensor.as_numpy() for tensor in request.inputs()] for request in requests]
        {body}
        return [
            pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(name, array) for name, array in outputs.items()])
            for outputs in answers
        ]
"""
_BODIES = {
    "add_sub": """answers = [{"OUTPUT0": a + b, "OUTPUT1": a - b} for a, b in given]""",
    "echo": """answers = [{"OUTPUT0": a, "OUTPUT1": b} for a, b in given]""",
    # a batch is one product, as on our side
    "mlp": """x = np.concatenate([inputs[0] for inputs in given])
        for weight in self.weights[:-1]:
            x = np.maximum(x @ weight, 0)
        ends = np.cumsum([len(inputs[0]) for inputs in given])[:-1]
        answers = [{"y": y} for y in np.split(x @ self.weights[-1], ends)]""",
}


def config(name: str, backend: str) -> str:
    """Return a model's config.pbtxt."""
    if name == "mlp":
        inputs, outputs = [_TENSOR.format("x", MLP_SIZES[0])], [_TENSOR.format("y", MLP_SIZES[-1])]
    else:
        inputs, outputs = ([_TENSOR.format(f"{kind}{i}", 16) for i in range(2)] for kind in ("INPUT", "OUTPUT"))
    lines = [f'name: "{name}"', f'backend: "{backend}"', f"max_batch_size: {MAX_BATCH}", "dynamic_batching { }"]
    lines += [f"input {{ {text} }}" for text in inputs] + [f"output {{ {text} }}" for text in outputs]
    return "\n".join([*lines, "instance_group { count: 1 kind: KIND_CPU }"])


def write_ours(repository: Path) -> None:
    """Write ``SERVED`` for a node: ONNX Runtime, and the identity backend for ``echo``."""
    for name in SERVED:
        version = repository / name / "1"
        version.mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config(name, "identity" if name == "echo" else "onnxruntime"))
        if name == "mlp":
            save_mlp(version / "model.onnx", MLP_SIZES)
        elif name == "add_sub":
            save_add_sub(version / "model.onnx")


def write_theirs(repository: Path) -> None:
    """Write ``SERVED`` for the reference server's Python backend."""
    for name in SERVED:
        version = repository / name / "1"
        version.mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config(name, "python"))
        (version / "model.py").write_text(_PYTHON.replace("{body}", _BODIES[name]))
    weights = {str(index): array for index, array in enumerate(_mlp_weights(MLP_SIZES))}
    np.savez(repository / "mlp" / "1" / "weights.npz", **weights)


def _mlp_weights(sizes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [
        (generator.standard_normal((rows, columns)) * 0.05).astype(np.float32)
        for rows, columns in itertools.pairwise(sizes)
    ]


def save_mlp(path: Path, sizes: tuple[int, ...]) -> None:
    """Write an ONNX file: x FP32 [N, first size] through products and ReLUs to y FP32 [N, last size]."""
    nodes, weights, name = [], [], "x"
    for index, array in enumerate(_mlp_weights(sizes)):
        is_last = index == len(sizes) - 2
        weights.append(numpy_helper.from_array(array, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{index}"], ["y" if is_last else f"h{index}"]))
        if not is_last:
            nodes.append(helper.make_node("Relu", [f"h{index}"], [f"r{index}"]))
            name = f"r{index}"
    _save(path, nodes, {"x": sizes[0]}, {"y": sizes[-1]}, weights)


def save_add_sub(path: Path) -> None:
    """Write an ONNX file: sum and difference of two FP32 [N, 16]."""
    names = ["INPUT0", "INPUT1"]
    nodes = [helper.make_node("Add", names, ["OUTPUT0"]), helper.make_node("Sub", names, ["OUTPUT1"])]
    _save(path, nodes, dict.fromkeys(names, 16), {"OUTPUT0": 16, "OUTPUT1": 16}, [])


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, int],
    outputs: dict[str, int],
    weights: list[onnx.TensorProto],
) -> None:
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "graph", infos[0], infos[1], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
