"""Binary JSON as XGBoost writes it. Source: Universal Binary JSON, draft 12 (https://ubjson.org)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_MOST_LEVELS = 64
_NUMBERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q", b"d": ">f", b"D": ">d"}
_TYPED = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_CONSTANTS: dict[bytes, Any] = {b"T": True, b"F": False, b"Z": None}


def parse(content: bytes) -> Any:
    """Return the document; arrays of one number type become numpy arrays.

    Raises:
        ValueError: it is cut or damaged.
    """
    reader = _Reader(content)
    document = reader.value(reader.take(1), 0)
    if reader.position != len(content):
        raise ValueError("there is more after the end")
    return document


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self.position + count
        if count < 0 or end > len(self._content):
            raise ValueError("it ends too early")
        piece = self._content[self.position : end]
        self.position = end
        return piece

    def value(self, kind: bytes, level: int) -> Any:
        """Return the value of the type that was read."""
        if level > _MOST_LEVELS:
            raise ValueError("it is nested too deep")
        if kind in _NUMBERS:
            return self._number(kind)
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == b"S":
            return self._text()
        if kind == b"{":
            return self._object(level)
        if kind == b"[":
            return self._array(level)
        raise ValueError(f"it has the unknown type {kind!r}")

    def _number(self, kind: bytes) -> Any:
        form = _NUMBERS[kind]
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def _length(self) -> int:
        kind = self.take(1)
        if kind not in _NUMBERS or kind in b"dD":
            raise ValueError("a length is no whole number")
        return int(self._number(kind))

    def _text(self) -> str:
        return self.take(self._length()).decode()

    def _object(self, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._peek() != b"}":
            key = self._text()
            found[key] = self.value(self.take(1), level + 1)
        self.take(1)
        return found

    def _array(self, level: int) -> Any:
        if self._peek() == b"$":
            self.take(1)
            kind = self.take(1)
            if kind not in _TYPED or self.take(1) != b"#":
                raise ValueError("an array has an unknown type")
            dtype = np.dtype(_TYPED[kind])
            return np.frombuffer(self.take(self._length() * dtype.itemsize), dtype)
        if self._peek() == b"#":
            self.take(1)
            return [self.value(self.take(1), level + 1) for _ in range(self._length())]
        found = []
        while self._peek() != b"]":
            found.append(self.value(self.take(1), level + 1))
        self.take(1)
        return found

    def _peek(self) -> bytes:
        return self._content[self.position : self.position + 1] or self.take(1)
