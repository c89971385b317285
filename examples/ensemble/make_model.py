"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

HERE = Path(__file__).parent


def make(repository: Path) -> None:
    """Write ``text_score`` and the two models that it is made of."""
    for name in ("letter_share", "share_score", "text_score"):
        (repository / name / "1").mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / name / "config.pbtxt", repository / name)
    shutil.copy(HERE / "letter_share" / "model.py", repository / "letter_share" / "1")
    onnx.save(_scorer(), repository / "share_score" / "1" / "model.onnx")


def _scorer() -> onnx.ModelProto:
    """Return a model: score = 1 where the vowels are at least two in five letters, else 0."""
    graph = helper.make_graph(
        [
            helper.make_node("GreaterOrEqual", ["share", "limit"], ["enough"]),
            helper.make_node("Cast", ["enough"], ["score"], to=TensorProto.FLOAT),
        ],
        "share_score",
        [helper.make_tensor_value_info("share", TensorProto.FLOAT, ["batch", 1])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        [helper.make_tensor("limit", TensorProto.FLOAT, [], [0.4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
