"""Reads protobuf fields out of a mapped file without loading it: a 10 GB model costs its graph, not its weights."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

MAX_FIELDS = 20_000_000


class Malformed(ValueError):
    """The bytes are no protobuf message. ``is_cut``: a field says it is longer than what is left."""

    def __init__(self, message: str, *, is_cut: bool = False) -> None:
        super().__init__(message)
        self.is_cut = is_cut


@dataclass(frozen=True, slots=True)
class Field:
    """One field: ``number`` is a varint's or fixed value, or ``start``/``end`` span a length-delimited one."""

    tag: int
    number: int = 0
    start: int = 0
    end: int = 0
    is_span: bool = False


@dataclass(slots=True)
class Reader:
    """Fields of nested messages in ``data``. The budget bounds the time that a hostile file can take."""

    data: mmap.mmap | bytes
    budget: int = field(default=MAX_FIELDS)

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message in ``data[start:end]``.

        Raises:
            Malformed: a field does not fit, has an unknown wire type, or the budget is spent.
        """
        position = start
        while position < end:
            self.budget -= 1
            if self.budget < 0:
                raise Malformed(_("it has more than %(limit)d fields") % {"limit": MAX_FIELDS})
            key, position = self._varint(position, end)
            tag, wire_type = key >> 3, key & 7
            if tag == 0:
                raise Malformed(_("a field has the number 0"))
            if wire_type == 0:
                value, position = self._varint(position, end)
                yield Field(tag, number=value)
            elif wire_type in (1, 5):
                width = 8 if wire_type == 1 else 4
                self._require(position + width, end)
                yield Field(tag, number=int.from_bytes(self.data[position : position + width], "little"))
                position += width
            elif wire_type == 2:
                length, position = self._varint(position, end)
                self._require(position + length, end)
                yield Field(tag, start=position, end=position + length, is_span=True)
                position += length
            else:
                raise Malformed(_("a field has the wire type %(type)d") % {"type": wire_type})

    def text(self, span: Field, limit: int = 65_536) -> str:
        """Return a string field; bytes that are no UTF-8 and what is beyond ``limit`` are replaced or left out."""
        return bytes(self.data[span.start : min(span.end, span.start + limit)]).decode("utf-8", "replace")

    def bytes(self, span: Field, limit: int = 1 << 20) -> bytes:
        """Return the bytes of a small nested message.

        Raises:
            Malformed: it is larger than ``limit``.
        """
        if span.end - span.start > limit:
            raise Malformed(_("a description has %(size)d bytes") % {"size": span.end - span.start})
        return bytes(self.data[span.start : span.end])

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            self._require(position + 1, end)
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
        raise Malformed(_("a number has more than 10 bytes"))

    def _require(self, wanted: int, end: int) -> None:
        if wanted > end:
            raise Malformed(
                _("a field ends at byte %(wanted)d, but only %(end)d are there") % {"wanted": wanted, "end": end},
                is_cut=True,
            )
