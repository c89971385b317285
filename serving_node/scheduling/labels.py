"""The names of classes: label files of outputs. Blocks.

Source: Triton core, label_provider.cc: one name a line; what stands between line feeds is the name, as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import OutputClasses

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_LARGEST_FILE = 64 * 1024 * 1024


def read_classes(config: ModelConfig, model_directory: Path) -> OutputClasses:
    """Return how the outputs of a model are classified; its label files lie in ``model_directory``.

    Raises:
        InferenceError: a label file is missing, too large or outside of the directory.
    """
    labels = {
        output.name: _read(model_directory, output.label_filename) for output in config.output if output.label_filename
    }
    return OutputClasses(config.max_batch_size > 0, labels)


def _read(model_directory: Path, filename: str) -> tuple[str, ...]:
    folder = model_directory.resolve()
    path = (folder / filename).resolve()
    if not path.is_relative_to(folder):
        raise InferenceError(ErrorCode.INVALID_ARG, f"label file '{filename}' lies outside the model directory")
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InferenceError(ErrorCode.INVALID_ARG, f"label file '{filename}' is larger than {_LARGEST_FILE} bytes")
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InferenceError(ErrorCode.INTERNAL, f"failed to open text file for read {path}: {reason}") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return tuple(lines)
