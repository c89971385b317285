"""Write the ONNX file that an engine is built from: python make_model.py REPOSITORY. The engine itself needs a GPU."""

import shutil
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

HERE = Path(__file__).parent


def make(repository: Path) -> None:
    """Write ``row_max`` without its engine: config.pbtxt, and ``row_max.onnx`` beside the version's folder."""
    graph = helper.make_graph(
        [helper.make_node("ReduceMax", ["x"], ["largest"], axes=[1], keepdims=1)],
        "row_max",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("largest", TensorProto.FLOAT, ["batch", 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = repository / "row_max"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "row_max.onnx")
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
