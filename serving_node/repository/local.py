"""Model folders on this machine's disk: what is in them, without loading anything. Blocks: call it in a thread.

Layout: ``<repository>/<model>/config.pbtxt`` and ``<repository>/<model>/<version>/model.onnx`` and so on.
Source: Triton's model repository documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import detect_backend, parse_pbtxt
from serving_node.contract.proto import model_config_pb2
from serving_node.core.errors import InferenceError

# A version folder: an integer without leading zeros, as Triton reads them.
_VERSION = re.compile(r"[1-9][0-9]*\Z")


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One model folder. ``modified_ns`` is the newest file time below it; ``config_text`` None without a config."""

    name: str
    path: Path
    versions: tuple[int, ...]
    config_text: str | None
    modified_ns: int


def find_models(repositories: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the model folders by name, sorted; a name with several folders is in several repositories."""
    found: dict[str, list[Path]] = {}
    for repository in repositories:
        for path in repository.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                found.setdefault(path.name, []).append(path)
    return dict(sorted(found.items()))


def locate_model(repositories: Sequence[Path], name: str) -> list[Path]:
    """Return the folders called ``name``; the name has been checked by ``check_model_name``."""
    return [repository / name for repository in repositories if (repository / name).is_dir()]


def check_model_name(name: str) -> None:
    """Refuse names that are empty or would leave the repository.

    Raises:
        InferenceError: INVALID_ARG with Triton's texts.
    """
    if not name.strip():
        raise InferenceError(ErrorCode.INVALID_ARG, "Model name cannot be empty. Please enter a valid name to deploy.")
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"invalid model name '{name}', model name must not contain path traversal characters"
        )


def read_model(path: Path) -> LocalModel:
    """Return what a model folder holds."""
    config = path / "config.pbtxt"
    return LocalModel(
        name=path.name,
        path=path,
        versions=find_versions(path),
        config_text=config.read_text(encoding="utf-8") if config.is_file() else None,
        modified_ns=_newest_ns(path),
    )


def find_versions(path: Path) -> tuple[int, ...]:
    """Return the version numbers in a model folder, ascending; other folder names are ignored."""
    return tuple(sorted(int(child.name) for child in path.iterdir() if _VERSION.match(child.name) and child.is_dir()))


def read_config(model: LocalModel) -> model_config_pb2.ModelConfig:
    """Return the config of a model folder with name and backend filled in; neither completed nor validated.

    Raises:
        InferenceError: INVALID_ARG; the config cannot be read, names another model, or no backend fits the files.
    """
    try:
        config = parse_pbtxt(model.config_text) if model.config_text else model_config_pb2.ModelConfig()
    except ContractError as error:
        raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error
    return identify(config, model)


def identify(config: model_config_pb2.ModelConfig, model: LocalModel) -> model_config_pb2.ModelConfig:
    """Return the config with name and backend from the folder.

    Raises:
        InferenceError: INVALID_ARG; the config names another model, or no backend fits the files.
    """
    if config.name and config.name != model.name:
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"unexpected directory name '{model.name}' for model '{config.name}', directory name must equal model name",
        )
    config.name = model.name
    files = {child.name for child in (model.path / str(model.versions[0])).iterdir()} if model.versions else set()
    try:
        return detect_backend(config, files, model_name=model.name)
    except ContractError as error:
        raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error


def _newest_ns(path: Path) -> int:
    newest = path.stat().st_mtime_ns
    for child in path.rglob("*"):
        newest = max(newest, child.stat().st_mtime_ns)
    return newest
