"""Three small networks with random weights, exported to ONNX with a dynamic batch dimension.

Needs torch, onnx and onnxscript; imported only by ``flotilla demo`` and the tests.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Exported:
    """A model file and one row of input for it, by input name."""

    path: Path
    sample: dict[str, torch.Tensor]


class DigitClassifier(nn.Module):
    """An MLP over 64 features. Shapes: features (batch, 64) -> logits (batch, 10)."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.layers(features)  # type: ignore[no-any-return]


class ThumbnailNet(nn.Module):
    """A small convolutional net. Shapes: image (batch, 3, 32, 32) -> probabilities (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return probabilities that sum to 1."""
        return torch.softmax(self.head(self.features(image)), dim=-1)


class SentenceEncoder(nn.Module):
    """A two-layer transformer. Shapes: token_ids (batch, 32) int64 -> sentence_embedding (batch, 64) of length 1."""

    def __init__(self, vocabulary: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(1, 32, width) * 0.02)
        self.attention = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.projections = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the mean of the last layer, scaled to length 1."""
        hidden = self.tokens(token_ids) + self.positions
        for attention, projection, norm in zip(self.attention, self.projections, self.norms, strict=True):
            query, key, value = attention(norm(hidden)).chunk(3, dim=-1)
            weights = torch.softmax(query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5, dim=-1)
            hidden = hidden + projection(weights @ value)
        return nn.functional.normalize(hidden.mean(dim=1), dim=-1)


def _features() -> dict[str, torch.Tensor]:
    return {"features": torch.randn(1, 64)}


def _image() -> dict[str, torch.Tensor]:
    return {"image": torch.rand(1, 3, 32, 32)}


def _token_ids() -> dict[str, torch.Tensor]:
    return {"token_ids": torch.randint(0, 1000, (1, 32))}


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, torch.Tensor]], str]] = {
    "digit-classifier": (DigitClassifier, _features, "logits"),
    "thumbnail-net": (ThumbnailNet, _image, "probabilities"),
    "sentence-encoder": (SentenceEncoder, _token_ids, "sentence_embedding"),
}


def export(name: str, folder: Path, seed: int) -> Exported:
    """Write ``<folder>/model.onnx`` of one of NETWORKS with weights drawn from ``seed``.

    Two exports with one seed give equal weights; ``Exported.sample`` has batch 1.
    """
    make, make_sample, output = NETWORKS[name]
    torch.manual_seed(seed)
    network = make().eval()
    sample = make_sample()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    # batch 2 while tracing: a 1 would be taken for a constant
    traced = tuple(torch.cat([tensor, tensor]) for tensor in sample.values())
    # it warns at length about torchvision operators, which nothing here uses
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            traced,
            str(path),
            input_names=list(sample),
            output_names=[output],
            dynamic_shapes=tuple({0: torch.export.Dim("batch", min=1, max=1024)} for _ in sample),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return Exported(path, sample)
