"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier

HERE = Path(__file__).parent


def make(repository: Path) -> None:
    """Train ``quadrant`` on made-up points and write it as ONNX: which of four quadrants a point is in."""
    points = np.random.default_rng(7).uniform(-1, 1, (2000, 2)).astype(np.float32)
    quadrants = (points[:, 0] > 0).astype(np.int64) + 2 * (points[:, 1] > 0)
    forest = RandomForestClassifier(n_estimators=20, max_depth=6, random_state=7).fit(points, quadrants)
    # Without zipmap the probabilities are a tensor, which a server can send.
    model = to_onnx(forest, points[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    folder = repository / "quadrant"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.onnx").write_bytes(model.SerializeToString())
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
