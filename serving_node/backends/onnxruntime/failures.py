"""ONNX Runtime's error texts as one sentence for a person. Pure."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : (\d+) : (\w+) : ")
_SOURCE = re.compile(r"^/\S+\.(?:h|cc|cpp|cu):\d+ .*?\)(?: const)? (?=[A-Z])")
_FILE = re.compile(r"^Load model from .+? failed: ?")
_OPSET = re.compile(r"Opset (\d+) is under development.*?support for domain (\S+) is till opset (\d+)", re.S)
_IR = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")


def load_sentence(text: str, filename: str, runtime_version: str) -> str:
    """Return why a model file cannot be loaded."""
    runtime = f"ONNX Runtime {runtime_version}"
    if found := _OPSET.search(text):
        opset, domain, newest = found.groups()
        return f"'{filename}' uses opset {opset} of {domain}, {runtime} supports opsets up to {newest}"
    if found := _IR.search(text):
        version, newest = found.groups()
        return f"'{filename}' uses ONNX IR version {version}, {runtime} supports versions up to {newest}"
    if "protobuf parsing failed" in text.lower() or "No graph was found" in text:
        return f"'{filename}' is not a complete ONNX model: {runtime} cannot parse it (truncated or another format)"
    return f"{runtime} cannot load '{filename}': {_clean(text)}"


def run_sentence(text: str) -> str:
    """Return why an execution failed, in the form of Triton's ONNX Runtime backend."""
    found = _PREFIX.match(text)
    number = found.group(1) if found else "1"
    return f"onnx runtime error {number}: {_clean(text)}"


def _clean(text: str) -> str:
    """Return the first line without ONNX Runtime's own prefix, the node's path and the C++ source location."""
    line = _FILE.sub("", _PREFIX.sub("", text).strip().split("\n", 1)[0])
    return _SOURCE.sub("", line).strip().rstrip(".") or "no reason given"
