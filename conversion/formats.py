"""What a model file is, by its content, and whether reading it can run code."""

from __future__ import annotations

import re
import zipfile
from enum import StrEnum
from pathlib import Path

from conversion.errors import ConversionFailed


class ModelFormat(StrEnum):
    """Kinds of model files that conversion tells apart."""

    ONNX = "onnx"
    TORCH_EXPORT = "torch_export"
    SKOPS = "skops"
    XGBOOST = "xgboost"
    LIGHTGBM = "lightgbm"
    PICKLE = "pickle"
    TORCHSCRIPT = "torchscript"
    AOTINDUCTOR = "aotinductor"
    TORCH_WEIGHTS = "torch_weights"
    CUT_ZIP = "cut_zip"
    UNKNOWN = "unknown"


CODE = {
    ModelFormat.PICKLE: "is a pickle: reading it runs code that is in it. If you trust the file, add --allow-code; "
    "better, save the model as data: with skops for scikit-learn, with save_model for XGBoost and LightGBM",
    ModelFormat.TORCH_EXPORT: "is a PyTorch package: reading it can run code, because PyTorch unpickles and evaluates "
    "parts of it. If you trust the file, add --allow-code",
}
"""What reading can run code from the file, and the words that say so; the other formats are data."""

_HEAD = 4096
# {"learner": ... in JSON, and in UBJSON, where the length of a key goes before it (type L: 8 bytes, big endian).
_XGBOOST_JSON = re.compile(rb'\s*\{\s*"(learner|version)"\s*:')
_XGBOOST_UBJ = re.compile(rb"\{L\x00{7}\x07(learner|version)")
_LIGHTGBM = re.compile(rb"tree\r?\nversion=")
# zlib, gzip, bzip2, xz: joblib writes them; only the name tells that a pickle is inside.
_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
_PICKLE_NAMES = {".pkl", ".pickle", ".joblib"}

_REFUSALS = {
    ModelFormat.TORCHSCRIPT: "is TorchScript, which the exporter cannot read; save the module with torch.export.save "
    "and convert the .pt2 file",
    ModelFormat.AOTINDUCTOR: "is an AOTInductor package, compiled for one machine; convert the exported program that "
    "it was made from",
    ModelFormat.TORCH_WEIGHTS: "holds PyTorch weights or a pickled module, not a program; save the module with "
    "torch.export.save and convert the .pt2 file",
    ModelFormat.CUT_ZIP: "is a ZIP archive that ends too early; copy it again",
    ModelFormat.UNKNOWN: "is no ONNX file, PyTorch exported program (.pt2), XGBoost (.json, .ubj), LightGBM (.txt), "
    "skops or pickle file",
}


def recognise(path: Path) -> ModelFormat:
    """Return what the file is. Reads its first bytes, and the table of contents of an archive."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(b"PK\x03\x04"):
        return _archive(path)
    if (_XGBOOST_JSON.match(head) and b'"learner"' in head) or _XGBOOST_UBJ.match(head):
        return ModelFormat.XGBOOST
    if _LIGHTGBM.match(head):
        return ModelFormat.LIGHTGBM
    if head[:1] == b"\x80" and head[1:2] <= b"\x05" and head[1:2]:
        return ModelFormat.PICKLE
    if head.startswith(_COMPRESSED) and _PICKLE_NAMES & {suffix.lower() for suffix in path.suffixes}:
        return ModelFormat.PICKLE
    # a ModelProto begins with its field 1, ir_version
    if head[:1] == b"\x08" or (head and path.suffix.lower() == ".onnx"):
        return ModelFormat.ONNX
    return ModelFormat.UNKNOWN


def require_allowed(path: Path, kind: ModelFormat) -> None:
    """Let pass what is data.

    Raises:
        ConversionFailed: reading the file may run code from it.
    """
    if kind in CODE:
        raise ConversionFailed(f"{path.name} {CODE[kind]}.")


def require_convertible(path: Path) -> ModelFormat:
    """Return what the file is.

    Raises:
        ConversionFailed: it is missing, empty, or of a kind that nothing here converts.
    """
    if not path.is_file():
        raise ConversionFailed(f"There is no file {path}.")
    if path.stat().st_size == 0:
        raise ConversionFailed(f"{path.name} is empty.")
    found = recognise(path)
    if found in _REFUSALS:
        raise ConversionFailed(f"{path.name} {_REFUSALS[found]}.")
    return found


def _archive(path: Path) -> ModelFormat:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return ModelFormat.CUT_ZIP
    leaves = {name.rpartition("/")[2] for name in names}
    if any("aotinductor/" in name for name in names):
        return ModelFormat.AOTINDUCTOR
    if "archive_format" in leaves or "serialized_exported_program.json" in leaves:
        return ModelFormat.TORCH_EXPORT
    if "constants.pkl" in leaves:
        return ModelFormat.TORCHSCRIPT
    if "data.pkl" in leaves:
        return ModelFormat.TORCH_WEIGHTS
    return ModelFormat.SKOPS if "schema.json" in names else ModelFormat.UNKNOWN
