"""Small PyTorch files for tests, made in code."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import torch

ROWS = torch.export.Dim("rows", min=1, max=64)
"""The batch dimension of exported programs."""


class Mlp(torch.nn.Module):
    """x FP32 [N, 16] -> y FP32 [N, 10]."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class AddSub(torch.nn.Module):
    """Two tensors of one shape -> their sum and difference."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a + b, a - b


class Twice(torch.nn.Module):
    """x [N, K] -> y [N, 2K], its columns twice: for every element type."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": torch.cat([x, x], 1)}


def save_exported(
    path: Path, module: torch.nn.Module, example: tuple[Any, ...], shapes: Any, kwargs: dict[str, Any] | None = None
) -> Path:
    """Export a module; ``shapes`` are the dynamic dimensions of its arguments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(torch.export.export(module.eval(), example, kwargs, dynamic_shapes=shapes), path)
    return path


def save_mlp(path: Path) -> Path:
    return save_exported(path, Mlp(), (torch.ones(4, 16),), ({0: ROWS},))


def save_script(path: Path, module: torch.nn.Module) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.jit.script(module).save(str(path))
    return path


def save_module(path: Path, code: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("import torch\n" + textwrap.dedent(code))
    return path


MLP_CODE = """
    class Mlp(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(16, 32)
            self.down = torch.nn.Linear(32, 10)

        def forward(self, x):
            return self.down(torch.relu(self.up(x)))
"""
