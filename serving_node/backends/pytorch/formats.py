"""Which file of a version is the model, and what kind of file it is, told by its content. Pure but for reading it."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.platforms import model_files
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.core.backend import ModelSource


class Format(StrEnum):
    """What a model file is. All of them are code: loading or running them does whatever they say."""

    EXPORTED = "exported program"
    PACKAGE = "AOTInductor package"
    TORCHSCRIPT = "TorchScript"
    MODULE = "Python module"
    WEIGHTS = "weights"


def find_model(source: ModelSource) -> tuple[Path, Format]:
    """Return the model's file and what it is.

    Weights are no model: the module of the same name beside them is (``model.py`` with ``model.pt``).

    Raises:
        InferenceError: INVALID_ARG, there is no such file or it is none that PyTorch loads.
    """
    path = _existing(source)
    found = file_format(path)
    if found is Format.WEIGHTS:
        module = path.with_suffix(".py")
        if not module.is_file():
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"'{path.name}' of model '{source.name}' holds weights without a model: put the module that they"
                f" belong to beside them as '{module.name}', or save the model with torch.export.save",
            )
        return module, Format.MODULE
    return path, found


def file_format(path: Path) -> Format:
    """Return what a file is.

    Raises:
        InferenceError: INVALID_ARG, it is neither Python source nor an archive that PyTorch writes.
    """
    if path.suffix == ".py":
        return Format.MODULE
    if path.suffix == ".safetensors":
        return Format.WEIGHTS
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if min((member.header_offset for member in archive.infolist()), default=0):
                raise zipfile.BadZipFile  # the end is missing, and an archive inside was taken for the whole
    except zipfile.BadZipFile:
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"'{path.name}' is not a complete PyTorch file: it is no archive (truncated or another format)",
        ) from None
    found = archive_format(names)
    if found is None:
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"'{path.name}' is neither an exported program, an AOTInductor package nor TorchScript",
        )
    return found


def archive_format(members: Sequence[str]) -> Format | None:
    """Return what an archive with these members is; None when PyTorch writes no such.

    Members lie in a folder named after the file that was written first, or in none.
    """
    inner = [member.partition("/")[2] for member in members]
    if any(name.startswith("data/aotinductor/") for name in (*members, *inner)):
        return Format.PACKAGE
    if "serialized_exported_program.json" in members:  # written by PyTorch before 2.8
        return Format.EXPORTED
    if any(name.startswith("models/") and name.endswith(".json") for name in (*members, *inner)):
        return Format.EXPORTED
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return Format.TORCHSCRIPT
    return Format.WEIGHTS if "data.pkl" in inner else None


def _existing(source: ModelSource) -> Path:
    folder = source.directory.resolve()
    names = model_files(source.config)
    for name in names:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise InferenceError(ErrorCode.INVALID_ARG, f"model file '{name}' lies outside the version's folder")
        if path.is_file():
            return path
    raise InferenceError(ErrorCode.INVALID_ARG, f"unable to find '{names[0]}' for model instance '{source.name}'")
