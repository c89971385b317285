"""Interpreters: the node's own, that of an environment which a model brings, or of one made from its requirements."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from serving_node.backends.python.environment_store import BuildError, EnvironmentStore
from serving_node.backends.python.requirements import RequirementsError, has_hashes, read_requirements
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

log = structlog.get_logger(__name__)

REQUIREMENTS = "requirements.txt"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_LOG_TAIL = 4096
_MOST_LOGS = 1000


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
    """Finds the interpreter of a model. ``store`` has those that are made from requirements."""

    def __init__(self, store: EnvironmentStore) -> None:
        self._store = store
        # what pip said, by the version's folder
        self._logs: dict[Path, Path] = {}

    def interpreter(self, config: ModelConfig, version_directory: Path, default: Path) -> Interpreter:
        """Return the interpreter that the model asks for. May unpack an archive or build an environment; blocks.

        Raises:
            InferenceError: INTERNAL, there is no interpreter where the config says; INVALID_ARG, the requirements
                cannot be installed.
        """
        model_directory = version_directory.parent
        text = config.parameters["EXECUTION_ENV_PATH"].string_value if "EXECUTION_ENV_PATH" in config.parameters else ""
        if text:
            path = Path(text.replace(_MODEL_DIRECTORY, str(model_directory)))
            return (
                self._built(config.name, path, version_directory) if path.suffix == ".txt" else _brought(config, path)
            )
        for folder in (version_directory, model_directory):
            path = folder / REQUIREMENTS
            if not path.is_file():
                continue
            if has_hashes(_text(config.name, path)):
                return self._built(config.name, path, version_directory)
            log.warning("python.requirements_ignored", model=config.name, file=str(path), reason="no hashes in it")
        return Interpreter(default)

    def build_log(self, version_directory: Path) -> str:
        """Return the end of what pip said when the environment of a version was built, empty when none was."""
        path = self._logs.get(version_directory)
        if path is None:
            return ""
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_TAIL))
            # the control plane's database takes no text with zeros
            return file.read(_LOG_TAIL).decode(errors="replace").replace("\0", "")
        return ""

    def _built(self, model: str, path: Path, version_directory: Path) -> Interpreter:
        """Return the interpreter of the environment that a file describes."""
        try:
            requirements = read_requirements(_text(model, path))
            while len(self._logs) >= _MOST_LOGS:
                del self._logs[next(iter(self._logs))]
            self._logs[version_directory] = self._store.log_of(self._store.key(requirements))
            root = self._store.find_or_build(requirements)
        except RequirementsError as error:
            raise InferenceError(ErrorCode.INVALID_ARG, f"{path.name} of model '{model}': {error}") from error
        except BuildError as error:
            sentence = f"the environment of model '{model}' cannot be built: {error}"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence) from error
        return Interpreter(root / "bin" / "python3", _variables(root))


def _brought(config: ModelConfig, path: Path) -> Interpreter:
    """Return the interpreter of a folder or an archive."""
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
        # a project of uv's has its environment in a folder of its own
        root = path / ".venv" if (path / ".venv" / "bin" / "python3").exists() else path
    interpreter = root / "bin" / "python3"
    if not interpreter.exists():
        if unpacked is not None:
            shutil.rmtree(unpacked, ignore_errors=True)
        raise _unusable(config.name, path, "it has no bin/python3")
    return Interpreter(interpreter, _variables(root), unpacked)


def _variables(root: Path) -> dict[str, str]:
    return {
        "PATH": f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(root / "lib"),
        "VIRTUAL_ENV": str(root),
    }


def _text(model: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(model, path, str(error)) from error


def _unusable(model: str, path: Path, reason: str) -> InferenceError:
    sentence = f"the execution environment '{path}' of model '{model}' cannot be used: {reason}"
    return InferenceError(ErrorCode.INTERNAL, sentence)
