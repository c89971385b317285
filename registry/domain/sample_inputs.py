"""Sample inputs: inference requests that a version is tried with, and the outputs that are expected of it. Pure.

A sample is a request of the open inference protocol as JSON, with the outputs that should come: ``{"name", "inputs":
[tensor], "id", "parameters", "outputs", "expected": [tensor], "tolerance": {"absolute", "relative"}}``, a tensor being
``{"name", "datatype", "shape", "data"}``. All but ``inputs`` may be missing; an expected tensor may have a tolerance of
its own.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from registry.domain.texts import gettext as _
from registry.errors import ValidationFailed
from serving_node.contract.datatypes import WIRE_NAMES

MAX_SAMPLES = 16
MAX_DOCUMENT_BYTES = 1 << 20
"""The largest set of samples as JSON."""
MAX_SAMPLE_BYTES = 32 << 20
"""The most bytes of the tensors of one sample."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}")
_MAX_DIMS = 32
_MAX_TENSORS = 256
_FIELDS = frozenset({"name", "inputs", "id", "parameters", "outputs", "expected", "tolerance"})
_CODES = {"FP16": "e", "FP32": "f", "FP64": "d", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q"}
_CODES |= {"UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q"}
# datatype -> (absolute, relative), as torch.testing has them; whole numbers and texts must be equal
_TOLERANCES = {"FP16": (1e-5, 1e-3), "BF16": (1e-5, 1.6e-2), "FP32": (1e-5, 1e-4), "FP64": (1e-7, 1e-7)}
_EXACT = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor with its elements as on the wire: little-endian, BYTES with a length of four bytes before each."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Expected:
    """An output that should come: each element within ``absolute + relative * |element|`` of it."""

    tensor: Tensor
    absolute: float
    relative: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A request, and what should come of it. ``head`` has its fields beside the tensors: id, parameters, outputs."""

    name: str
    inputs: tuple[Tensor, ...]
    head: Mapping[str, Any] = field(default_factory=dict)
    expected: tuple[Expected, ...] = ()


def read_samples(document: Any) -> tuple[Sample, ...]:
    """Return the samples in a list of them.

    Raises:
        ValidationFailed: one is not as it must be; ``errors`` name the place, such as ``samples[0].inputs[1].data``.
    """
    if not isinstance(document, list) or not 1 <= len(document) <= MAX_SAMPLES:
        raise _bad("samples", _("This is a list of 1 to %(most)d samples.") % {"most": MAX_SAMPLES})
    found: dict[str, Sample] = {}
    for place, one in enumerate(document):
        where = f"samples[{place}]"
        name = one.get("name") if isinstance(one, dict) else None
        if name is None:
            name = f"sample {place + 1}"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            text = _("A name has up to 100 letters, digits, spaces and . _ -, and begins with a letter or digit.")
            raise _bad(f"{where}.name", text)
        if name in found:
            raise _bad(f"{where}.name", _("Two samples are called “%(name)s”.") % {"name": name})
        found[name] = read_sample(one, name, where)
    return tuple(found.values())


def read_sample(document: Any, name: str, where: str) -> Sample:
    """Return one sample. ``where`` is the place that errors name. Raises ValidationFailed."""
    if not isinstance(document, dict):
        raise _bad(where, _("A sample is an object with a list “inputs”."))
    if unknown := sorted(set(map(str, document)) - _FIELDS):
        raise _bad(f"{where}.{unknown[0]}"[:200], _("A sample has no such field."))
    parameters = document.get("parameters", {})
    if not isinstance(parameters, dict) or not all(_is_plain(one) for one in parameters.values()):
        raise _bad(f"{where}.parameters", _("Parameters are an object of texts, numbers, true and false."))
    outputs = document.get("outputs", [])
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and _is_text(one.get("name")) for one in outputs):
        raise _bad(f"{where}.outputs", _("Outputs are a list of objects with a name."))
    inputs = _tensors(document.get("inputs"), f"{where}.inputs")
    if not inputs:
        raise _bad(f"{where}.inputs", _("A sample is an object with a list “inputs”."))
    common = _tolerance(document.get("tolerance"), f"{where}.tolerance")
    wanted = document.get("expected", [])
    expected = tuple(
        expected_of(tensor, _tolerance(one.get("tolerance"), f"{where}.expected[{place}].tolerance") or common)
        for place, (one, tensor) in enumerate(zip(wanted, _tensors(wanted, f"{where}.expected"), strict=True))
    )
    sample = Sample(
        name, inputs, {key: document[key] for key in ("id", "parameters", "outputs") if key in document}, expected
    )
    require_small(sample, where)
    return sample


def expected_of(tensor: Tensor, tolerance: tuple[float, float] | None) -> Expected:
    """Return what is expected; without a tolerance the one that is usual for the data type."""
    return Expected(tensor, *(tolerance or _TOLERANCES.get(tensor.datatype, _EXACT)))


def require_small(sample: Sample, where: str) -> None:
    """Do nothing when the tensors of a sample may be sent together. Raises ValidationFailed."""
    size = sum(len(one.data) for one in (*sample.inputs, *(one.tensor for one in sample.expected)))
    if size > MAX_SAMPLE_BYTES:
        raise _bad(where, _("The tensors of a sample are at most %(most)d MiB.") % {"most": MAX_SAMPLE_BYTES >> 20})


def pack(datatype: str, values: list[Any]) -> bytes:
    """Return elements as on the wire. Raises ValueError when one is no value of the data type."""
    if datatype == "BYTES":
        return b"".join(_packed_text(one) for one in values)
    if datatype == "BOOL":
        if not all(isinstance(one, bool) or one in (0, 1) for one in values):
            raise ValueError
        return bytes(int(one) for one in values)
    is_float = datatype in _TOLERANCES
    if not all(_is_number(one) and (is_float or isinstance(one, int)) for one in values):
        raise ValueError
    try:
        if datatype == "BF16":
            # the upper half of a single-precision number
            return b"".join(struct.pack("<f", one)[2:] for one in values)
        return struct.pack(f"<{len(values)}{_CODES[datatype]}", *values)
    except (struct.error, OverflowError) as error:
        raise ValueError from error


def _packed_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError
    text = value.encode()
    return struct.pack("<I", len(text)) + text


def _tensors(documents: Any, where: str) -> tuple[Tensor, ...]:
    if not isinstance(documents, list) or len(documents) > _MAX_TENSORS:
        raise _bad(where, _("This is a list of up to %(most)d tensors.") % {"most": _MAX_TENSORS})
    found = tuple(_tensor(one, f"{where}[{place}]") for place, one in enumerate(documents))
    if len({one.name for one in found}) < len(found):
        raise _bad(where, _("Two tensors have the same name."))
    return found


def _tensor(document: Any, where: str) -> Tensor:
    if not isinstance(document, dict):
        raise _bad(where, _("A tensor is an object with name, datatype, shape and data."))
    name, datatype, shape = document.get("name"), document.get("datatype"), document.get("shape")
    if not _is_text(name):
        raise _bad(f"{where}.name", _("A tensor needs a name."))
    if not isinstance(datatype, str) or datatype not in WIRE_NAMES:
        raise _bad(f"{where}.datatype", _("This is one of %(names)s.") % {"names": ", ".join(WIRE_NAMES)})
    is_shape = isinstance(shape, list) and len(shape) <= _MAX_DIMS
    if not isinstance(shape, list) or not is_shape or not all(type(one) is int and 0 <= one < 2**31 for one in shape):
        raise _bad(f"{where}.shape", _("A shape is a list of up to %(most)d whole numbers.") % {"most": _MAX_DIMS})
    values = [*_flat(document.get("data"))]
    count = math.prod(shape)
    if len(values) != count:
        words = {"count": len(values), "shape": ", ".join(map(str, shape)), "wanted": count}
        text = _("There are %(count)d elements, but the shape [%(shape)s] has %(wanted)d.")
        raise _bad(f"{where}.data", text % words)
    try:
        data = pack(datatype, values)
    except ValueError as error:
        raise _bad(f"{where}.data", _("An element is no %(datatype)s.") % {"datatype": datatype}) from error
    return Tensor(str(name), datatype, tuple(shape), data)


def _flat(data: Any) -> Iterator[Any]:
    """Yield the elements of nested lists, in order."""
    waiting = [iter([data])]
    while waiting:
        for one in waiting[-1]:
            if isinstance(one, list):
                waiting.append(iter(one))
                break
            if one is not None:
                yield one
        else:
            waiting.pop()


def _tolerance(document: Any, where: str) -> tuple[float, float] | None:
    if document is None:
        return None
    if not isinstance(document, dict) or not set(document) <= {"absolute", "relative"}:
        raise _bad(where, _("A tolerance has the fields absolute and relative."))
    found = [document.get(name, 0.0) for name in ("absolute", "relative")]
    if not all(_is_number(one) and 0 <= one < math.inf for one in found):
        raise _bad(where, _("A tolerance is a number, 0 or more."))
    return float(found[0]), float(found[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 1000


def _bad(where: str, message: str) -> ValidationFailed:
    return ValidationFailed(f"{where}: {message}", errors=[{"field": where, "message": message}])
