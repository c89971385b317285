"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent


def make(repository: Path) -> None:
    """Write ``word_count``: its model is the file beside this one."""
    folder = repository / "word_count"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "model.py", folder / "1")
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
