"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
from pathlib import Path

import numpy as np
import xgboost

HERE = Path(__file__).parent


def make(repository: Path) -> None:
    """Train ``rings`` on made-up points and save it as XGBoost does: which of three rings a point is in."""
    points = np.random.default_rng(7).uniform(-1, 1, (3000, 2)).astype(np.float32)
    rings = np.digitize(np.hypot(points[:, 0], points[:, 1]), [0.4, 0.8])
    parameters = {"objective": "multi:softprob", "num_class": 3, "max_depth": 5, "nthread": 1}
    booster = xgboost.train(parameters, xgboost.DMatrix(points, label=rings), 20)
    folder = repository / "rings"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    booster.save_model(folder / "1" / "model.json")
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
