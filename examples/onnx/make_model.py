"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

HERE = Path(__file__).parent


def make(repository: Path) -> None:
    """Write ``scale_shift``: y = 2 x + 1 for rows of four numbers, as many rows as there are."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "scale"], ["scaled"]), helper.make_node("Add", ["scaled", "shift"], ["y"])],
        "scale_shift",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [
            helper.make_tensor("scale", TensorProto.FLOAT, [], [2.0]),
            helper.make_tensor("shift", TensorProto.FLOAT, [], [1.0]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = repository / "scale_shift"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "1" / "model.onnx")
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
