from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """PyTorch keeps its number of threads for the process: models of these tests set it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
