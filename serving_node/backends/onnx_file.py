"""The structure of an ONNX file and its external data, checked before any engine sees them; weights stay on disk.

Field numbers: onnx.proto of the ONNX standard (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

# number in TensorProto.DataType -> bits of an element; strings (8) have none
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16}
_BITS |= {17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}
_VARINT, _FIXED64, _SPAN, _FIXED32 = 0, 1, 2, 5
_EXTERNAL = 1
# protobuf itself reads no message that is nested deeper
_MAX_DEPTH = 100
_MAX_BYTES = 2**63 - 1
_MAX_RANK = 64
# bounds the time that a hostile file can take
_MAX_FIELDS = 20_000_000


class _DamagedError(Exception):
    """The bytes are no complete message; the text says what is wrong with them."""


@dataclass(slots=True)
class _Field:
    """One field: its number, and its value or the bytes ``start`` to ``end`` of the file that it fills."""

    number: int
    value: int
    start: int = 0
    end: int = 0


def check_onnx_file(path: Path, folder: Path) -> tuple[Path, ...]:
    """Return the files that hold the external data of the model at ``path``, each once.

    ``folder`` is the version's; no external data may lie outside of it.

    Raises:
        InferenceError: INVALID_ARG with one sentence: the file is cut or something else, a tensor is larger than its
            bytes or than any memory, or external data is missing, too short or elsewhere.
    """
    with path.open("rb") as file:
        walk = _Walk(file, path, folder.resolve())
        try:
            walk.model(os.fstat(file.fileno()).st_size)
        except _DamagedError as error:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"'{path.name}' is not a complete ONNX model: {error} (truncated or another format)",
            ) from None
        return tuple(walk.external)


class _Walk:
    def __init__(self, file: BinaryIO, path: Path, folder: Path) -> None:
        self._file = file
        self._path = path
        self._folder = folder
        self._budget = _MAX_FIELDS
        self.external: dict[Path, None] = {}

    def model(self, size: int) -> None:
        graphs = 0
        for field in self._fields(0, size):
            if field.number == 7 and field.end:
                graphs += 1
                self._graph(field, 1)
            elif field.number == 25 and field.end:  # a function of the model's own
                for part in self._fields(field.start, field.end):
                    if part.number == 7 and part.end:
                        self._node(part, 2)
        if not graphs:
            raise _DamagedError("it has no graph")

    def _graph(self, span: _Field, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise _DamagedError(f"its graphs are nested more than {_MAX_DEPTH} messages deep")
        for field in self._fields(span.start, span.end):
            if not field.end:
                continue
            if field.number == 1:
                self._node(field, depth + 1)
            elif field.number == 5:
                self._tensor(field)
            elif field.number == 15:
                self._sparse(field)

    def _node(self, span: _Field, depth: int) -> None:
        for attribute in self._fields(span.start, span.end):
            if attribute.number != 5 or not attribute.end:
                continue
            for field in self._fields(attribute.start, attribute.end):
                if not field.end:
                    continue
                if field.number in (5, 10):
                    self._tensor(field)
                elif field.number in (22, 23):
                    self._sparse(field)
                elif field.number in (6, 11):
                    self._graph(field, depth + 2)

    def _sparse(self, span: _Field) -> None:
        for field in self._fields(span.start, span.end):
            if field.number in (1, 2) and field.end:
                self._tensor(field)

    def _tensor(self, span: _Field) -> None:
        name, element, location = "", 0, 0
        dims: list[int] = []
        raw: _Field | None = None
        entries: dict[str, str] = {}
        for field in self._fields(span.start, span.end):
            if field.number == 1:
                dims.extend(self._packed(field) if field.end else [_signed(field.value)])
            elif field.number == 2:
                element = field.value
            elif field.number == 8:
                name = self._text(field)
            elif field.number == 9:
                raw = field
            elif field.number == 13 and field.end:
                texts = {part.number: self._text(part) for part in self._fields(field.start, field.end)}
                entries[texts.get(1, "")] = texts.get(2, "")
            elif field.number == 14:
                location = field.value
        bits = _BITS.get(element)
        if len(dims) > _MAX_RANK or min(dims, default=0) < 0 or prod(dims) * (bits or 8) > 8 * _MAX_BYTES:
            raise self._refusal(f"tensor '{name}' has the impossible shape {dims[:_MAX_RANK]}")
        needed = None if bits is None else (prod(dims) * bits + 7) // 8
        if location == _EXTERNAL:
            self._external(name, entries, needed)
        elif raw is not None and needed is not None and raw.end - raw.start != needed:
            raise self._refusal(
                f"tensor '{name}' of shape {dims} needs {needed} bytes, the file has {raw.end - raw.start}"
            )

    def _external(self, name: str, entries: dict[str, str], needed: int | None) -> None:
        location = entries.get("location", "")
        path = (self._path.parent / location).resolve()
        if PurePosixPath(location).is_absolute() or not path.is_relative_to(self._folder):
            raise self._refusal(f"the external data of tensor '{name}' lies outside the version's folder: '{location}'")
        try:
            status = path.stat()
        except OSError:
            raise self._refusal(f"the external data of tensor '{name}' is missing: '{location}'") from None
        if not stat.S_ISREG(status.st_mode):
            raise self._refusal(f"the external data of tensor '{name}' is no file: '{location}'")
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or needed or 0)
        except ValueError:
            offset = length = -1
        if offset < 0 or length < 0 or (needed is not None and length != needed):
            raise self._refusal(f"the place of tensor '{name}' in '{location}' does not fit its shape")
        if offset + length > status.st_size:
            raise self._refusal(
                f"'{location}' is truncated: tensor '{name}' ends at byte {offset + length}, the file has"
                f" {status.st_size}"
            )
        self.external[path] = None

    def _refusal(self, reason: str) -> InferenceError:
        return InferenceError(ErrorCode.INVALID_ARG, f"'{self._path.name}' cannot be loaded: {reason}")

    def _packed(self, span: _Field) -> list[int]:
        self._file.seek(span.start)
        numbers = []
        while self._file.tell() < span.end:
            numbers.append(_signed(self._varint(span.end)))
        return numbers

    def _text(self, span: _Field) -> str:
        if not span.end:
            raise _DamagedError("a number stands where a text should be")
        self._file.seek(span.start)
        return self._file.read(min(span.end - span.start, 4096)).decode("utf-8", "replace")

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        """Yield the fields of the message that fills these bytes."""
        position = start
        while position < end:
            self._budget -= 1
            if self._budget < 0:
                raise _DamagedError(f"it has more than {_MAX_FIELDS} parts")
            self._file.seek(position)
            key = self._varint(end)
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                field = _Field(number, self._varint(end))
                position = self._file.tell()
            elif wire == _SPAN:
                length = self._varint(end)
                begin = self._file.tell()
                position = begin + length
                field = _Field(number, 0, begin, position)
            elif wire in (_FIXED32, _FIXED64):
                field = _Field(number, 0)
                position = self._file.tell() + (4 if wire == _FIXED32 else 8)
            else:
                raise _DamagedError("it is no protobuf message")
            if not number or position > end:
                raise _DamagedError("a part of it does not end where it should")
            yield field

    def _varint(self, end: int) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._file.read(1)
            if not byte or self._file.tell() > end:
                break
            number |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return number
        raise _DamagedError("a part of it does not end where it should")


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
