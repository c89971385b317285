"""The demo's models, made on the spot with random weights: one for each of four backends.

Needs torch, onnx and onnxscript; imported only by ``flotilla demo`` and the tests.
"""

from __future__ import annotations

import logging
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Made:
    """A version's files by their path inside it, and one row of input by input name."""

    files: dict[str, Path]
    sample: dict[str, npt.NDArray[Any]]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.files.values())


class DigitClassifier(nn.Module):
    """An MLP over 64 features. Shapes: features (batch, 64) -> logits (batch, 10)."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.layers(features)


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


# Words become numbers by a checksum, so that the same word has the same number everywhere.
_TOKENIZER = textwrap.dedent("""
    import zlib

    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        \"\"\"Text to the ids that sentence-encoder takes: TEXT (batch, 1) -> token_ids (batch, 32).\"\"\"

        def execute(self, requests):
            return [self._answer(request) for request in requests]

        def _answer(self, request):
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            ids = np.zeros((len(texts), 32), np.int64)
            for row, (text,) in enumerate(texts):
                words = text.split()[:32]
                ids[row, : len(words)] = [zlib.crc32(word) % 999 + 1 for word in words]
            return pb_utils.InferenceResponse([pb_utils.Tensor("token_ids", ids)])
    """).lstrip()
_TOKENIZER_CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "text" data_type: TYPE_STRING dims: 1 }
output { name: "token_ids" data_type: TYPE_INT64 dims: 32 }
"""
_ENCODER_CONFIG = """
backend: "pytorch"
default_model_filename: "model.pt2"
max_batch_size: 8
input { name: "token_ids" data_type: TYPE_INT64 dims: 32 }
output { name: "sentence_embedding" data_type: TYPE_FP32 dims: 64 }
"""


def make(name: str, folder: Path, seed: int) -> Made:
    """Write the files of one of MODELS below ``folder``, with weights drawn from ``seed``.

    Two calls with one seed give equal weights; the sample has batch 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    return MODELS[name].make(folder)


def _digits(folder: Path) -> Made:
    return _onnx(folder, DigitClassifier(), {"features": torch.randn(1, 64)}, "logits")


def _thumbnails(folder: Path) -> Made:
    return _onnx(folder, ThumbnailNet(), {"image": torch.rand(1, 3, 32, 32)}, "probabilities")


def _sentences(folder: Path) -> Made:
    """Write an exported program of PyTorch, with a config: nobody runs it to find its inputs and outputs."""
    sample = {"token_ids": torch.randint(0, 1000, (1, 32))}
    path = folder / "model.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(SentenceEncoder().eval(), _traced(sample), dynamic_shapes=_batches(sample))
        torch.export.save(program, path)
    return Made({"model.pt2": path, "config.pbtxt": _text(folder / "config.pbtxt", _ENCODER_CONFIG)}, _arrays(sample))


def _tokens(folder: Path) -> Made:
    files = {
        "model.py": _text(folder / "model.py", _TOKENIZER),
        "config.pbtxt": _text(folder / "config.pbtxt", _TOKENIZER_CONFIG),
    }
    return Made(files, {"text": np.array([["Many small boats sail under one flag"]], dtype=object)})


@dataclass(frozen=True, slots=True)
class Recipe:
    """The backend that serves a model, the file that it reads, and what makes the files."""

    backend: str
    model_file: str
    make: Callable[[Path], Made]


MODELS = {
    "digit-classifier": Recipe("onnxruntime", "model.onnx", _digits),
    "thumbnail-net": Recipe("openvino", "model.onnx", _thumbnails),
    "sentence-encoder": Recipe("pytorch", "model.pt2", _sentences),
    "tokenizer": Recipe("python", "model.py", _tokens),
}


def _onnx(folder: Path, network: nn.Module, sample: dict[str, torch.Tensor], output: str) -> Made:
    path = folder / "model.onnx"
    # it warns at length about torchvision operators, which nothing here uses
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            _traced(sample),
            str(path),
            input_names=list(sample),
            output_names=[output],
            dynamic_shapes=_batches(sample),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return Made({"model.onnx": path}, _arrays(sample))


def _traced(sample: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    # batch 2 while tracing: a 1 would be taken for a constant
    return tuple(torch.cat([tensor, tensor]) for tensor in sample.values())


def _batches(sample: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    return tuple({0: torch.export.Dim("batch", min=1, max=1024)} for _ in sample)


def _arrays(sample: dict[str, torch.Tensor]) -> dict[str, npt.NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in sample.items()}


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
