from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _process() -> Iterator[None]:
    """Put back what models set for the whole process, which is a worker's of their own where they are served."""
    threads, path, modules = torch.get_num_threads(), sys.path.copy(), set(sys.modules)
    yield
    torch.set_num_threads(threads)
    folders, sys.path[:] = set(sys.path) - set(path), path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.rpartition("/")[0] in folders:
            del sys.modules[name]
