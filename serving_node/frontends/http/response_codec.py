"""Infer responses as JSON with, or without, binary tensors behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from serving_node.core.metadata import OutputClasses
from serving_node.core.request import InferenceResponse, Lease
from serving_node.core.tensor import Tensor
from serving_node.frontends.classification import classify
from serving_node.frontends.http.answers import JSON_HEADERS
from serving_node.frontends.http.json_data import write_data
from serving_node.frontends.http.request_codec import ParsedOutput, ParsedRequest
from serving_node.wire.exchange import Buffer, Headers, answer_head

_MEMO_ENTRIES = 512
HEADER_LENGTH = b"inference-header-content-length"
# JSON of more tensor bytes than this is written in another process.
LARGE_JSON_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Chosen:
    """One output to send, and how. ``is_stored``: its data are in shared memory already."""

    tensor: Tensor
    is_binary: bool
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """``body`` begins with ``json_bytes`` of JSON; without binary tensors that is all."""

    body: list[Buffer]
    json_bytes: int
    has_binary: bool


def infer_headers(json_bytes: int | None) -> Headers:
    """Return the headers of an answer that has so many bytes of JSON before its binary tensors, or only JSON."""
    if json_bytes is None:
        return JSON_HEADERS
    return ((b"content-type", b"application/octet-stream"), (HEADER_LENGTH, b"%d" % json_bytes))


def choose_outputs(
    response: InferenceResponse,
    wanted: tuple[ParsedOutput, ...],
    default_binary: bool,
    output_classes: Callable[[str, str], OutputClasses],
    lease: Lease | None = None,
) -> list[Chosen]:
    """Return the requested outputs (all without a request), classified or written to shared memory where asked.

    Raises:
        InferenceError: a classification cannot be made, or an output does not fit its place.
    """
    if not wanted:
        return [Chosen(tensor, default_binary) for tensor in response.outputs]
    by_name = {output.name: output for output in reversed(wanted)}  # of two for one output, the first counts
    chosen: list[Chosen] = []
    for tensor in response.outputs:
        output = by_name.get(tensor.name)
        if output is None:
            continue
        if lease is not None and lease.store(tensor):
            chosen.append(Chosen(Tensor(tensor.name, tensor.datatype, tensor.shape, b""), True, is_stored=True))
            continue
        classes = output.parameters.get("classification")
        if classes is not None:
            tensor = classify(tensor, int(classes), output_classes(response.model_name, response.model_version))
        chosen.append(Chosen(tensor, output.is_binary))
    return chosen


@dataclass(frozen=True, slots=True)
class _Alike:
    """What responses have in common that differ in the bytes of binary outputs only.

    ``head`` is of the HTTP answer, ``text`` the JSON; ``places`` are of the tensors behind it in the response.
    """

    head: bytes
    text: bytes
    places: tuple[int, ...]


class ResponseEncoder:
    """Encodes responses. What describes binary outputs is written once per distinct description."""

    def __init__(self) -> None:
        self._memo: dict[tuple[object, ...], bytes] = {}
        self._alike: dict[tuple[object, ...], _Alike | None] = {}

    def encode_alike(self, response: InferenceResponse, request: ParsedRequest) -> tuple[bytes, list[Buffer]] | None:
        """Return head and body of the answer when one like it was made before, or can be; else None.

        ``request`` must be one whose JSON many requests share.
        """
        if response.id or response.parameters:
            return None
        outputs = response.outputs
        key = (
            request,
            response.model_name,
            response.model_version,
            *[(tensor.name, tensor.datatype, tensor.shape, len(tensor.data)) for tensor in outputs],
        )
        try:
            alike = self._alike[key]
        except KeyError:
            alike = self._find_alike(response, request)
            if len(self._alike) >= _MEMO_ENTRIES:
                self._alike.clear()
            self._alike[key] = alike
        if alike is None:
            return None
        body: list[Buffer] = [alike.text]
        for place in alike.places:
            body.append(outputs[place].data)
        return alike.head, body

    def _find_alike(self, response: InferenceResponse, request: ParsedRequest) -> _Alike | None:
        wanted = request.outputs
        if request.uses_regions or any("classification" in output.parameters for output in wanted):
            return None
        by_name = {output.name: output.is_binary for output in reversed(wanted)}
        places = [place for place, tensor in enumerate(response.outputs) if not wanted or tensor.name in by_name]
        chosen = [response.outputs[place] for place in places]
        if not all(by_name.get(tensor.name, request.is_binary) for tensor in chosen):
            return None
        text = self._described(response, [Chosen(tensor, is_binary=True) for tensor in chosen])
        places = [place for place in places if len(response.outputs[place].data)]
        size = sum(len(response.outputs[place].data) for place in places)
        head = answer_head(200, infer_headers(len(text) if places else None), len(text) + size)
        return _Alike(head, text, tuple(places))

    def encode(
        self, response: InferenceResponse, outputs: list[Chosen], texts: list[bytes | None] | None = None
    ) -> EncodedResponse:
        """Return the parts of the body. Binary tensors are not copied.

        ``texts`` has the JSON of outputs whose data were written elsewhere, in the order of ``outputs``.

        Raises:
            InferenceError: INVALID_ARG, the type of an output cannot travel as JSON.
        """
        if all(output.is_binary for output in outputs) and not response.parameters:
            text = self._described(response, outputs)
        else:
            text = _write(response, outputs, texts or [None] * len(outputs))
        if response.id:
            text = b'{"id":' + orjson.dumps(response.id) + b"," + text[1:]
        body: list[Buffer] = [text]
        for output in outputs:
            if output.is_binary and len(output.tensor.data):
                body.append(output.tensor.data)
        return EncodedResponse(body, len(text), len(body) > 1)

    def _described(self, response: InferenceResponse, outputs: list[Chosen]) -> bytes:
        key = (
            response.model_name,
            response.model_version,
            *[(c.tensor.name, c.tensor.datatype, c.tensor.shape, len(c.tensor.data), c.is_stored) for c in outputs],
        )
        text = self._memo.get(key)
        if text is None:
            text = _write(response, outputs, [None] * len(outputs))
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[key] = text
        return text


def _write(response: InferenceResponse, outputs: list[Chosen], texts: list[bytes | None]) -> bytes:
    head: dict[str, object] = {"model_name": response.model_name, "model_version": response.model_version}
    if response.parameters:
        head["parameters"] = response.parameters
    written = b",".join(_write_output(output, text) for output, text in zip(outputs, texts, strict=True))
    return b"".join((orjson.dumps(head)[:-1], b',"outputs":[', written, b"]}"))


def _write_output(output: Chosen, text: bytes | None) -> bytes:
    tensor = output.tensor
    head: dict[str, object] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    if output.is_stored:
        return orjson.dumps(head)
    if output.is_binary:
        head["parameters"] = {"binary_data_size": len(tensor.data)}
        return orjson.dumps(head)
    if text is None:
        text = write_data(tensor.name, tensor.datatype, tensor.data)
    return b"".join((orjson.dumps(head)[:-1], b',"data":', text, b"}"))


def write_all_data(described: list[tuple[str, str, int]], data: bytes) -> list[bytes]:
    """Return the JSON arrays of several tensors (name, datatype, bytes) whose bytes follow each other in ``data``."""
    texts: list[bytes] = []
    start = 0
    for name, datatype, size in described:
        texts.append(write_data(name, datatype, data[start : start + size]))
        start += size
    return texts
