"""Interpreters: the node's own, or that of a model's execution environment (EXECUTION_ENV_PATH)."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"


@dataclass(slots=True)
class Interpreter:
    """What runs a model's workers. ``folder`` is removed with it when the node unpacked it."""

    path: Path
    variables: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def close(self) -> None:
        """Remove what was unpacked. Idempotent."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


class Environments:
    """Finds the interpreter of a model."""

    def interpreter(self, config: ModelConfig, model_directory: Path, default: Path) -> Interpreter:
        """Return the interpreter that the config asks for. May unpack an archive, which takes a while.

        Raises:
            InferenceError: INTERNAL, there is no interpreter where the config says.
        """
        text = config.parameters["EXECUTION_ENV_PATH"].string_value if "EXECUTION_ENV_PATH" in config.parameters else ""
        if not text:
            return Interpreter(default)
        path = Path(text.replace(_MODEL_DIRECTORY, str(model_directory)))
        unpacked: Path | None = None
        if path.is_file():
            unpacked = root = Path(tempfile.mkdtemp(prefix="flotilla-environment-"))
            try:
                with tarfile.open(path) as archive:
                    archive.extractall(root, filter="tar")
            except (OSError, tarfile.TarError) as error:
                shutil.rmtree(root, ignore_errors=True)
                raise _unusable(config.name, path, str(error)) from error
        else:
            root = path
        interpreter = root / "bin" / "python3"
        if not interpreter.exists():
            if unpacked is not None:
                shutil.rmtree(unpacked, ignore_errors=True)
            raise _unusable(config.name, path, "it has no bin/python3")
        variables = {
            "PATH": f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": str(root / "lib"),
            "VIRTUAL_ENV": str(root),
        }
        return Interpreter(interpreter, variables, unpacked)


def _unusable(model: str, path: Path, reason: str) -> InferenceError:
    sentence = f"the execution environment '{path}' of model '{model}' cannot be used: {reason}"
    return InferenceError(ErrorCode.INTERNAL, sentence)
