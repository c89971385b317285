"""Finds compiled modules before Python finds their source."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from serving_node.compiled.sets import SUFFIX, folder, sets_folder


class CompiledFinder(MetaPathFinder):
    """Takes modules from the files of one compiled set, which are named by the modules."""

    def __init__(self, directory: Path, files: dict[str, Path]) -> None:
        self.directory = directory
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by the import system."""
        file = self.files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def use(directory: Path | None = None) -> bool:
    """Load modules from their compiled set from now on, if there is one; return whether there is.

    Call this before any of them is imported: a class must not be there twice. ``directory``: instead of the set for
    this source.
    """
    if directory is None and not sets_folder().is_dir():
        return False  # without reading the whole source for its digest
    directory = directory or folder()
    found = {file.name.removesuffix(SUFFIX): file for file in directory.glob(f"*{SUFFIX}")}
    if not found or any(name in sys.modules for name in found):
        return False
    sys.meta_path.insert(0, CompiledFinder(directory, found))
    return True


def worker_folder() -> Path | None:
    """Return where the compiled modules of workers are, None while compiled modules are not used."""
    for finder in sys.meta_path:
        if isinstance(finder, CompiledFinder):
            return finder.directory / "worker"
    return None


def compiled_modules() -> int:
    """Return how many modules were loaded from a compiled set."""
    names = [name for finder in sys.meta_path if isinstance(finder, CompiledFinder) for name in finder.files]
    return sum(name in sys.modules for name in names if name.startswith("serving_node."))
