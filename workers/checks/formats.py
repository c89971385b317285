"""What a file is, by its first bytes and never by its name."""

from __future__ import annotations

from pathlib import Path

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from conversion.formats import CODE, ModelFormat, recognise

_MAGIC = [
    (b"PK\x03\x04", gettext_lazy("a ZIP archive, perhaps a model saved by PyTorch")),
    (b"\x80\x02", gettext_lazy("a Python pickle")),
    (b"\x80\x03", gettext_lazy("a Python pickle")),
    (b"\x80\x04", gettext_lazy("a Python pickle")),
    (b"\x80\x05", gettext_lazy("a Python pickle")),
    (b"\x89HDF\r\n\x1a\n", gettext_lazy("an HDF5 file, perhaps a Keras model")),
    (b"GGUF", gettext_lazy("a GGUF file")),
    (b"\x1f\x8b", gettext_lazy("a gzip archive")),
    (b"BZh", gettext_lazy("a bzip2 archive")),
    (b"\xfd7zXZ\x00", gettext_lazy("an xz archive")),
    (b"\x28\xb5\x2f\xfd", gettext_lazy("a zstd archive")),
    (b"ftrt", gettext_lazy("a TensorRT engine")),
    (b"ptrt", gettext_lazy("a TensorRT engine")),
    (b"\x7fELF", gettext_lazy("a program or library")),
    (b"MZ", gettext_lazy("a Windows program")),
    (b"%PDF", gettext_lazy("a PDF document")),
    (b"\x89PNG", gettext_lazy("an image")),
    (b"\xff\xd8\xff", gettext_lazy("an image")),
    (b"version https://git-lfs", gettext_lazy("a Git LFS pointer, not the model itself; run 'git lfs pull' first")),
    (b"<!DOCTYPE", gettext_lazy("an HTML page, perhaps an error page saved by a download")),
    (b"<html", gettext_lazy("an HTML page, perhaps an error page saved by a download")),
]


_CONVERTIBLE = {
    ModelFormat.XGBOOST: gettext_lazy("an XGBoost model"),
    ModelFormat.LIGHTGBM: gettext_lazy("a LightGBM model"),
    ModelFormat.SKOPS: gettext_lazy("a scikit-learn model saved by skops"),
    ModelFormat.PICKLE: gettext_lazy("a Python pickle"),
    ModelFormat.TORCH_EXPORT: gettext_lazy("a PyTorch exported program"),
}
# by the backend "trees"
_SERVED_AS_THEY_ARE = {ModelFormat.XGBOOST, ModelFormat.LIGHTGBM}


def reads_as_code(path: Path) -> bool:
    """Return whether reading the file runs code that is in it."""
    return recognise(path) in CODE


def conversion_advice(path: Path, name: str) -> str:
    """Return how to make ONNX of the file called ``name``, or an empty string when nothing converts it."""
    kind = recognise(path)
    if kind not in _CONVERTIBLE:
        return ""
    words = {"name": name, "kind": _CONVERTIBLE[kind]}
    text = _("%(name)s is %(kind)s: convert it with “flotilla convert %(name)s model.onnx” and upload the result.")
    if kind in _SERVED_AS_THEY_ARE:
        text = _(
            "%(name)s is %(kind)s: convert it with “flotilla convert %(name)s model.onnx” and upload the result, or "
            "upload it with a config for the backend “trees”."
        )
    return text % words


def describe_content(path: Path) -> str:
    """Return what the content seems to be ("a ZIP archive, ..."), or an empty string when nothing is recognised."""
    with path.open("rb") as file:
        head = file.read(4096)
    for magic, description in _MAGIC:
        if head.startswith(magic):
            return str(description)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= 100 * 1024**2:
        return _("a safetensors file: weights without the network")
    if head[4:8] == b"TFL3":
        return _("a TensorFlow Lite model")
    try:
        text = head.decode("utf-8") if len(head) < 4096 else head.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return ""
    return _("a text file") if text.isprintable() or all(c.isprintable() or c in "\r\n\t\f" for c in text) else ""
