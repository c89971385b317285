"""Small real ONNX files, made in code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def linear(
    *, opset: int = 17, ir_version: int = 8, width: int = 4, domains: dict[str, int] | None = None, **arguments: object
) -> onnx.ModelProto:
    """y = x @ w + b, FP32[-1, width] -> FP32[-1, 2]."""
    generator = np.random.default_rng(0)
    weights = numpy_helper.from_array(generator.normal(size=(width, 2)).astype(np.float32), "w")
    bias = numpy_helper.from_array(np.zeros(2, np.float32), "b")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [weights, bias],
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="tests")


def identity(elem_type: int, shape: list[int | str] | None, **arguments: int) -> onnx.ModelProto:
    """y = x of any element type and shape."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "identity",
        [helper.make_tensor_value_info("x", elem_type, shape)],
        [helper.make_tensor_value_info("y", elem_type, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", arguments.get("opset", 17))], ir_version=8)


def with_external_data(folder: Path, *, location: str = "weights.bin", width: int = 512) -> Path:
    """Save a linear model whose weights lie in ``location`` beside it; return the model's path."""
    path = folder / "model.onnx"
    onnx.save_model(linear(width=width), path, save_as_external_data=True, location="weights.bin", size_threshold=128)
    if location != "weights.bin":
        model = onnx.load(path, load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
        path.write_bytes(model.SerializeToString())
    return path


def branching() -> onnx.ModelProto:
    """An If whose branches hold constants: nested graphs, tensors in attributes."""

    def branch(name: str, value: float) -> onnx.GraphProto:
        constant = helper.make_node(
            "Constant", [], [name], value=numpy_helper.from_array(np.array([value], np.float32), "c")
        )
        return helper.make_graph([constant], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])])

    node = helper.make_node("If", ["flag"], ["y"], then_branch=branch("a", 1.0), else_branch=branch("b", 2.0))
    graph = helper.make_graph(
        [node],
        "branching",
        [helper.make_tensor_value_info("flag", TensorProto.BOOL, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sequence_output() -> onnx.ModelProto:
    """An output that is no tensor."""
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x"], ["y"])],
        "sequence",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def custom_operator(*, local: bool) -> onnx.ModelProto:
    """An operator of a foreign domain, with or without a function in the file that defines it."""
    graph = helper.make_graph(
        [helper.make_node("Double", ["x"], ["y"], domain="acme.ops")],
        "custom",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme.ops", 1)]
    functions = []
    if local:
        body = helper.make_node("Add", ["a", "a"], ["c"])
        functions = [helper.make_function("acme.ops", "Double", ["a"], ["c"], [body], opsets[:1])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
