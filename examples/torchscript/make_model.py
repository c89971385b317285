"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent


class Mix(torch.nn.Module):
    """The sum and the difference of two rows."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return left + right, left - right


def make(repository: Path) -> None:
    """Write ``sum_difference`` as TorchScript."""
    folder = repository / "sum_difference"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch lets TorchScript go; files of it are still served
        torch.jit.save(torch.jit.trace(Mix().eval(), (torch.zeros(2, 4), torch.zeros(2, 4))), folder / "1" / "model.pt")
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
