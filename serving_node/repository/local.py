"""Model folders on this machine's disk: what is in them, without loading anything. Blocks: call it in a thread.

Layout: ``<repository>/<model>/config.pbtxt`` and ``<repository>/<model>/<version>/model.onnx`` and so on; custom
configs are ``<repository>/<model>/configs/<name>.pbtxt``. Source: Triton's model repository documentation.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.repository.model_folder import OWN, FolderTimes, Found, ModelFolder, ModelId

# A version folder: an integer without leading zeros, as Triton reads them.
_VERSION = re.compile(r"(?:0|[1-9][0-9]*)\Z")
_CONFIG = "config.pbtxt"
_CUSTOM_CONFIGS = "configs"
# Deeper folders, and links that lead in circles, are not looked into.
_DEPTH_LIMIT = 32


class PollError(Exception):
    """A model cannot be read from its repository. The text is one sentence."""


def find_models(repositories: Iterable[tuple[str, Path]]) -> Found:
    """Return the model folders of repositories that are given as (namespace, folder).

    Raises:
        PollError: a repository cannot be read.
    """
    paths: dict[ModelId, Path] = {}
    duplicates: set[ModelId] = set()
    for namespace, repository in repositories:
        for name in model_names(repository):
            key = ModelId(namespace, name)
            if paths.setdefault(key, repository / name) != repository / name:
                duplicates.add(key)
    return Found({key: path for key, path in sorted(paths.items()) if key not in duplicates}, frozenset(duplicates))


def model_names(repository: Path) -> list[str]:
    """Return the names of the model folders; hidden folders are none, since mounts and tools keep their own there.

    Raises:
        PollError: the repository cannot be read.
    """
    try:
        with os.scandir(repository) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except OSError as error:
        raise PollError(f"the model repository {repository} cannot be read: {error.strerror}") from error


def locate(repositories: Iterable[tuple[str, Path]], name: str) -> Found:
    """Return the folders of one name, which has been checked by ``check_model_name``."""
    paths: dict[ModelId, Path] = {}
    duplicates: set[ModelId] = set()
    if name and not name.startswith(".") and "\0" not in name and "/" not in name:
        for namespace, repository in repositories:
            key = ModelId(namespace, name)
            if (repository / name).is_dir():
                if key in paths:
                    duplicates.add(key)
                paths[key] = repository / name
    return Found({key: path for key, path in paths.items() if key not in duplicates}, frozenset(duplicates))


def check_model_name(name: str) -> None:
    """Refuse names that are empty or would leave the repository.

    Raises:
        InferenceError: INVALID_ARG with Triton's texts.
    """
    trimmed = name.strip()
    if not trimmed:
        raise InferenceError(ErrorCode.INVALID_ARG, "Model name cannot be empty. Please enter a valid name to deploy.")
    if "/" in trimmed or trimmed == "..":
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"invalid model name '{name}', model name must not contain path traversal characters"
        )


def read_folder(path: Path, config_name: str = "") -> ModelFolder:
    """Return what a model folder holds. ``config_name``: a custom config that goes before config.pbtxt if it exists.

    Raises:
        PollError: it cannot be read.
    """
    try:
        config = config_path(path, config_name)
        versions = find_versions(path)
        first = sorted(map(str, versions))[:1]
        return ModelFolder(
            name=path.name,
            path=path,
            versions=versions,
            config_text=config.read_text(encoding="utf-8") if config.is_file() else None,
            times=read_times(path, config_name),
            files=frozenset(child.name for version in first for child in (path / version).iterdir()),
        )
    except OSError as error:
        raise PollError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PollError(f"the config of model '{path.name}' is not UTF-8 text") from error


def config_path(path: Path, config_name: str) -> Path:
    """Return the file that holds the config of a model folder; it need not exist."""
    if config_name:
        custom = path / _CUSTOM_CONFIGS / f"{config_name}.pbtxt"
        if custom.is_file():
            return custom
    return path / _CONFIG


def find_versions(path: Path) -> tuple[int, ...]:
    """Return the version numbers in a model folder, ascending; other folder names are ignored."""
    return tuple(sorted(int(child.name) for child in path.iterdir() if _VERSION.match(child.name) and child.is_dir()))


def read_times(path: Path, config_name: str = "") -> FolderTimes:
    """Return when the parts of a model folder changed. What cannot be looked at counts as never changed."""
    parts = {OWN: _own_time(path)}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                parts[entry.name] = _newest(Path(entry.path), 0)
    except OSError:
        return FolderTimes()
    config = config_path(path, config_name)
    return FolderTimes(parts, config.relative_to(path).parts[0])


def write_files(name: str, files: Mapping[str, bytes]) -> Path:
    """Write uploaded files into a model folder within a new private folder, and return the private folder.

    Raises:
        PollError: a path leaves the model folder or cannot be written. Nothing is left behind.
    """
    root = Path(tempfile.mkdtemp(prefix="flotilla-model-"))
    try:
        base = (root / name).resolve()
        base.mkdir()
        for relative, content in files.items():
            target = (base / relative.lstrip("/")).resolve()
            if not target.is_relative_to(base) or target == base:
                raise PollError(f"the file '{relative}' must stay within the model directory")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except (OSError, ValueError) as error:
        shutil.rmtree(root, ignore_errors=True)
        raise PollError(f"cannot write an uploaded file of model '{name}': {error}") from error
    except PollError:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return root


def remove(folder: Path | None) -> None:
    """Remove a private folder; harmless when it is None or gone."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _own_time(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:
        return 0
    # Copying with the old time of modification, as rsync does, shows in the time of the last status change.
    return max(status.st_mtime_ns, status.st_ctime_ns)


def _newest(path: Path, depth: int) -> int:
    newest = _own_time(path)
    if depth < _DEPTH_LIMIT and path.is_dir():
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    newest = max(newest, _newest(Path(entry.path), depth + 1))
        except OSError:
            return newest
    return newest
