"""From a model folder to a model that may be loaded: its config read, identified and checked. Blocks.

What fails here leaves everything as it was; what fails later is a failed load. Source: Triton's polling of a model.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import (
    detect_backend,
    fixed_part,
    normalise,
    parse_json,
    parse_pbtxt,
    validate_in_repository,
)
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.repository import local
from serving_node.repository.checksums import check_files
from serving_node.repository.local import PollError
from serving_node.repository.model_folder import FolderTimes, ModelFolder


@dataclass(frozen=True, slots=True)
class PolledModel:
    """A model as it is to be loaded. ``config`` has name and backend and is not completed.

    ``fixed_part``: the config without what can change while the model serves. ``temporary`` holds uploaded files, and
    belongs to whoever has this object.
    """

    folder: ModelFolder
    config: ModelConfig
    times: FolderTimes
    fixed_part: bytes
    temporary: Path | None = None


@dataclass(frozen=True, slots=True)
class PollRules:
    """How folders are read: the name of a custom config, and whether configs are completed from the model."""

    config_name: str = ""
    auto_complete: bool = True


def poll_folder(path: Path, rules: PollRules, override: str | None) -> PolledModel:
    """Read a model folder. ``override``: a config as JSON text that replaces the one in the folder.

    Raises:
        PollError: there is no such folder, or its config does not hold.
    """
    folder = local.read_folder(path, rules.config_name)
    config = _read_config(folder, override)
    times = folder.times
    if override is not None:
        # The override stays until a file gets newer than it.
        times = times.with_config_at(time.time_ns())
    return _polled(folder, config, times, rules, None)


def poll_uploaded(name: str, files: dict[str, bytes], rules: PollRules, override: str | None) -> PolledModel:
    """Build a model from uploaded files only.

    Raises:
        PollError: no config, files that leave the folder, or a config that does not hold. Nothing is left behind.
    """
    if override is None:
        raise PollError("Load parameter 'config' must be specified for model file override")
    temporary = local.write_files(name, files)
    try:
        folder = local.read_folder(temporary / name)
        # Older than anything: the next plain load reads the repository again.
        return _polled(folder, _read_config(folder, override), FolderTimes(), rules, temporary)
    except PollError:
        local.remove(temporary)
        raise


def _read_config(folder: ModelFolder, override: str | None) -> ModelConfig:
    try:
        if override is not None:
            return parse_json(override)
        return parse_pbtxt(folder.config_text) if folder.config_text else ModelConfig()
    except ContractError as error:
        raise PollError(error.message) from error


def _polled(
    folder: ModelFolder, config: ModelConfig, times: FolderTimes, rules: PollRules, temporary: Path | None
) -> PolledModel:
    if config.name and config.name != folder.name:
        raise PollError(
            f"unexpected directory name '{folder.name}' for model '{config.name}', directory name must equal model name"
        )
    config.name = folder.name
    check_files(config, folder.path)
    try:
        config = detect_backend(config, folder.files, model_name=folder.name)
        validate_in_repository(config, folder.name)
        fixed = normalise(config, gpu_count=None)
    except ContractError as error:
        raise PollError(error.message) from error
    return PolledModel(folder, config, times, fixed_part(fixed), temporary)
