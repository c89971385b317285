"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as ops

HERE = Path(__file__).parent


def make(repository: Path) -> None:
    """Write ``relu_sum``: the sum of the positive numbers of each row, in OpenVINO's own format."""
    x = ops.parameter([-1, 4], np.float32, name="x")
    total = ops.reduce_sum(ops.relu(x), np.array([1]), keep_dims=True)
    total.output(0).get_tensor().set_names({"total"})
    x.output(0).get_tensor().set_names({"x"})
    folder = repository / "relu_sum"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    ov.save_model(ov.Model([total], [x], "relu_sum"), folder / "1" / "model.xml", compress_to_fp16=False)
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
