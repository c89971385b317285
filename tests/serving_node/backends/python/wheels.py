"""A folder of wheels made in code, and the requirements that name them: nothing comes from a network."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> str:
    """Write a wheel of pure Python and return its line for requirements.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in contents.items():
            archive.writestr(file, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def make_numpy(folder: Path) -> str:
    """Write a wheel that lends an environment the numpy of this one, and return its line."""
    return make_wheel(folder, "numpy", np.__version__, {"lent_numpy.pth": f"{Path(np.__file__).parents[1]}\n"})
