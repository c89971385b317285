"""What an ONNX file says about itself, read from its structure; weights stay on disk.

Field numbers: onnx.proto of the ONNX standard (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from django.utils.translation import gettext as _
from google.protobuf.message import DecodeError

from workers.checks.wire_reader import Field, Malformed, Reader

_MODEL_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})
_MAX_DEPTH = 32
_MAX_METADATA = 1000
_MAX_METADATA_CHARACTERS = 2000


class UnreadableModel(ValueError):
    """The file is no usable ONNX file; the message is one sentence for people."""


class NotOnnx(UnreadableModel):
    """The content is something else altogether."""


@dataclass(frozen=True, slots=True)
class ExternalData:
    """Weights kept in another file: ``location`` as written in the model, ``end`` the last byte needed (0: unknown)."""

    location: str
    end: int


@dataclass(slots=True)
class OnnxSummary:
    """The parts of a ModelProto that decide whether and how it can be served."""

    ir_version: int = 0
    producer: str = ""
    opsets: dict[str, int] = field(default_factory=dict)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: set[str] = field(default_factory=set)
    operators: set[tuple[str, str]] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    external: set[ExternalData] = field(default_factory=set)
    metadata: dict[str, str] = field(default_factory=dict)
    node_count: int = 0


def read_onnx(path: Path, name: str) -> OnnxSummary:
    """Read the file at ``path``; ``name`` is what messages call it.

    Raises:
        NotOnnx: the content is not ONNX.
        UnreadableModel: it is ONNX but cut, damaged or without a graph.
    """
    size = path.stat().st_size
    if size == 0:
        raise UnreadableModel(_("%(name)s is empty.") % {"name": name})
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Walk(Reader(data), name).model(size)


class _Walk:
    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self._name = name
        self._has_graph = False
        self._summary = OnnxSummary()

    def model(self, size: int) -> OnnxSummary:
        try:
            for item in self._reader.fields(0, size):
                self._model_field(item)
        except Malformed as error:
            raise self._damage(error) from error
        except DecodeError as error:
            raise UnreadableModel(
                _("%(name)s is damaged: an input or output cannot be read.") % {"name": self._name}
            ) from error
        if not self._has_graph:
            if not self._summary.ir_version:
                raise self._not_onnx()
            raise UnreadableModel(_("%(name)s has no graph; it is incomplete.") % {"name": self._name})
        if not self._summary.opsets and self._summary.ir_version >= 3:
            raise UnreadableModel(
                _("%(name)s names no operator set; it is incomplete. Upload it again.") % {"name": self._name}
            )
        return self._summary

    def _damage(self, error: Malformed) -> UnreadableModel:
        if not self._summary.ir_version or self._summary.ir_version > 1000:
            return self._not_onnx()
        if error.is_cut:
            return UnreadableModel(
                _("%(name)s is truncated: %(detail)s. Upload it again.") % {"name": self._name, "detail": error}
            )
        return UnreadableModel(_("%(name)s is damaged: %(detail)s.") % {"name": self._name, "detail": error})

    def _not_onnx(self) -> NotOnnx:
        return NotOnnx(_("%(name)s is not an ONNX file.") % {"name": self._name})

    def _model_field(self, item: Field) -> None:
        if item.tag not in _MODEL_FIELDS:
            raise self._not_onnx()
        if item.tag == 1 and not item.is_span:
            self._summary.ir_version = item.number
        elif item.tag == 2 and item.is_span:
            self._summary.producer = self._reader.text(item, 200)
        elif item.tag == 7 and item.is_span:
            if not self._summary.ir_version:
                raise self._not_onnx()
            self._has_graph = True
            self._graph(item, depth=0)
        elif item.tag == 8 and item.is_span:
            opset = onnx.OperatorSetIdProto.FromString(self._reader.bytes(item))
            domain = _plain_domain(opset.domain)
            self._summary.opsets[domain] = max(opset.version, self._summary.opsets.get(domain, opset.version))
        elif item.tag == 14 and item.is_span:
            self._property(item)
        elif item.tag == 25 and item.is_span:
            self._function(item)

    def _property(self, span: Field) -> None:
        name, value = "", ""
        for item in self._reader.fields(span.start, span.end):
            if item.is_span and item.tag == 1:
                name = self._reader.text(item, 200)
            elif item.is_span and item.tag == 2:
                value = self._reader.text(item, _MAX_METADATA_CHARACTERS)
        if len(self._summary.metadata) < _MAX_METADATA:
            self._summary.metadata[name] = value

    def _graph(self, span: Field, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise Malformed(_("graphs are nested more than %(limit)d deep") % {"limit": _MAX_DEPTH})
        for item in self._reader.fields(span.start, span.end):
            if not item.is_span:
                continue
            if item.tag == 1:
                self._node(item, depth)
            elif item.tag == 5:
                self._tensor(item, is_input_default=depth == 0)
            elif item.tag == 15:
                for part in self._reader.fields(item.start, item.end):
                    if part.is_span and part.tag in (1, 2):
                        self._tensor(part, is_input_default=depth == 0)
            elif depth == 0 and item.tag in (11, 12):
                value = onnx.ValueInfoProto.FromString(self._reader.bytes(item))
                (self._summary.inputs if item.tag == 11 else self._summary.outputs).append(value)

    def _node(self, span: Field, depth: int) -> None:
        operator, domain = "", ""
        for item in self._reader.fields(span.start, span.end):
            if not item.is_span:
                continue
            if item.tag == 4:
                operator = self._reader.text(item, 200)
            elif item.tag == 7:
                domain = self._reader.text(item, 200)
            elif item.tag == 5:
                self._attribute(item, depth)
        self._summary.node_count += 1
        self._summary.operators.add((_plain_domain(domain), operator))

    def _attribute(self, span: Field, depth: int) -> None:
        for item in self._reader.fields(span.start, span.end):
            if item.is_span and item.tag in (5, 10):
                self._tensor(item, is_input_default=False)
            elif item.is_span and item.tag in (6, 11):
                self._graph(item, depth + 1)

    def _function(self, span: Field) -> None:
        name, domain = "", ""
        for item in self._reader.fields(span.start, span.end):
            if item.is_span and item.tag == 1:
                name = self._reader.text(item, 200)
            elif item.is_span and item.tag == 10:
                domain = self._reader.text(item, 200)
            elif item.is_span and item.tag == 7:
                self._node(item, depth=1)
        self._summary.functions.add((_plain_domain(domain), name))

    def _tensor(self, span: Field, *, is_input_default: bool) -> None:
        name, is_external = "", False
        entries: dict[str, str] = {}
        for item in self._reader.fields(span.start, span.end):
            if item.tag == 8 and item.is_span:
                name = self._reader.text(item, 1000)
            elif item.tag == 14 and not item.is_span:
                is_external = item.number == 1
            elif item.tag == 13 and item.is_span:
                entry = onnx.StringStringEntryProto.FromString(self._reader.bytes(item))
                entries[entry.key] = entry.value
        if is_input_default:
            self._summary.initializers.add(name)
        if is_external:
            self._summary.external.add(_external(entries))


def _plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _external(entries: dict[str, str]) -> ExternalData:
    try:
        end = int(entries.get("offset", "0")) + int(entries.get("length", "0"))
    except ValueError:
        end = -1
    return ExternalData(location=entries.get("location", ""), end=end)
