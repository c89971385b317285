"""Write the model repository: python make_model.py REPOSITORY."""

import shutil
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent


class Norm(torch.nn.Module):
    """The length of each row. Shapes: vector (batch, 3) -> length (batch, 1)."""

    def forward(self, vector: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(vector, dim=1, keepdim=True)


def make(repository: Path) -> None:
    """Write ``row_norm`` as a program of torch.export, for any number of rows."""
    # Two rows while it is traced: one would be taken for a constant.
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    program = torch.export.export(Norm().eval(), (torch.zeros(2, 3),), dynamic_shapes=(batch,))
    folder = repository / "row_norm"
    (folder / "1").mkdir(parents=True, exist_ok=True)
    torch.export.save(program, folder / "1" / "model.pt2")
    shutil.copy(HERE / "config.pbtxt", folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
