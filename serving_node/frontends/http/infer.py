"""POST .../infer: JSON, binary tensors behind JSON, or raw bytes in; the same out."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from functools import partial

from serving_node.contract.datatypes import byte_size, wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError, request_error
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.dataplane import DataPlane
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.http.answers import respond_error, respond_failure
from serving_node.frontends.http.compression import (
    MIN_COMPRESSED_BYTES,
    choose_encoding,
    compress,
    decompress,
    is_supported,
)
from serving_node.frontends.http.first_request import serve_when_loaded
from serving_node.frontends.http.json_data import wrong_type
from serving_node.frontends.http.request_codec import ParsedInput, ParsedRequest, parse_infer
from serving_node.frontends.http.response_codec import (
    HEADER_LENGTH,
    LARGE_JSON_BYTES,
    Chosen,
    EncodedResponse,
    ResponseEncoder,
    choose_outputs,
    infer_headers,
    write_all_data,
)
from serving_node.frontends.parameters import STICKY_HEADER, RequestParameters, sort_parameters
from serving_node.frontends.shared_memory import RegionLease, SharedMemory
from serving_node.frontends.single_response import SingleResponse
from serving_node.frontends.tracing import begin_http_trace
from serving_node.wire.exchange import Buffer, Headers, HttpExchange

_log = logging.getLogger(__name__)

# JSON over this size is parsed in another process, compressed bodies over the other in a thread.
_LARGE_JSON_BYTES = 1024 * 1024
_LARGE_COMPRESSED_BYTES = 64 * 1024
REFUSE_DECOUPLED = "HTTP end point doesn't support models with decoupled transaction policy"
# As much of the header's value as is a number, as in Triton.
_INTEGER = re.compile(rb"[ \t]*[+-]?[0-9]+")
_MEMO_ENTRIES = 512
_MEMO_BYTES = 4096


class InferHandler:
    """Serves infer requests of all models from one dataplane."""

    def __init__(
        self,
        dataplane: DataPlane,
        pool: CodecPool,
        max_input_bytes: int,
        forwarding: HeaderForwarding | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        self.dataplane = dataplane
        self.memory = memory or SharedMemory.disabled()
        self.forwarding = forwarding
        self.pool = pool
        self.max_input_bytes = max_input_bytes
        self.encoder = ResponseEncoder()
        self._memo: dict[bytes, tuple[ParsedRequest, RequestParameters]] = {}

    def serve(self, exchange: HttpExchange, model: str, version: str) -> None:
        """Answer one request, now or later. Raises InferenceError for what is wrong with it."""
        if self.dataplane.tracing is not None:
            begin_http_trace(exchange, self.dataplane.tracing, model)
        encoding = exchange.headers.get(b"content-encoding", b"").lower()
        if not encoding or encoding == b"identity":
            try:
                _Infer(self, exchange, model, version).start(exchange.body)
            except InferenceError:
                if serve_when_loaded(self.dataplane, exchange, model, partial(self.serve, exchange, model, version)):
                    return
                self.check_model(model, version)  # what is wrong with the model comes first
                raise
            return
        try:
            self.check_model(model, version)
        except InferenceError:
            if serve_when_loaded(self.dataplane, exchange, model, partial(self.serve, exchange, model, version)):
                return
            raise
        if not is_supported(encoding):
            accepted = ((b"accept-encoding", b"gzip, deflate"),)
            respond_error(exchange, 501, "Unsupported compression type", accepted)
        elif len(exchange.body) <= _LARGE_COMPRESSED_BYTES:
            body = decompress(exchange.body, self.max_input_bytes)
            _Infer(self, exchange, model, version).start(memoryview(body))
        else:
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(None, decompress, exchange.body, self.max_input_bytes)
            infer = _Infer(self, exchange, model, version)
            future.add_done_callback(lambda done: infer.guard(lambda: infer.start(memoryview(done.result()))))

    def check_model(self, model: str, version: str) -> None:
        """Refuse a model that does not serve, or that has no single response. Raises InferenceError."""
        if self.dataplane.model_config(model, version).model_transaction_policy.decoupled:
            raise InferenceError(ErrorCode.UNSUPPORTED, REFUSE_DECOUPLED)

    def parse(self, text: memoryview) -> tuple[ParsedRequest, RequestParameters]:
        """Return the JSON part of a request, parsed once for all requests that have the same."""
        if len(text) > _MEMO_BYTES:
            parsed = parse_infer(text)
            return parsed, sort_parameters(parsed.parameters, wrong_type)
        key = bytes(text)
        found = self._memo.get(key)
        if found is None:
            parsed = parse_infer(key)
            found = parsed, sort_parameters(parsed.parameters, wrong_type)
            if parsed.is_description:
                if len(self._memo) >= _MEMO_ENTRIES:
                    self._memo.clear()
                self._memo[key] = found
        return found


class _Infer:
    """One infer request on its way through the stages: parse, infer, encode, compress."""

    __slots__ = ("_exchange", "_handler", "_lease", "_model", "_parsed", "_single", "_version")

    def __init__(self, handler: InferHandler, exchange: HttpExchange, model: str, version: str) -> None:
        self._handler = handler
        self._exchange = exchange
        self._model = model
        self._version = version
        self._parsed: ParsedRequest | None = None
        self._single: SingleResponse | None = None
        self._lease: RegionLease | None = None

    def guard(self, stage: Callable[[], None]) -> None:
        """Run a stage that is not under the eyes of the frontend's own error handling."""
        if self._exchange.disconnected:
            return
        try:
            stage()
        except InferenceError as error:
            respond_failure(self._exchange, error)
        except Exception:
            _log.exception("infer over HTTP failed")
            respond_error(self._exchange, 500, "internal error")

    # -- request

    def start(self, body: memoryview) -> None:
        """Parse the body and submit the request."""
        limit = self._handler.max_input_bytes
        json_bytes = self._json_bytes(len(body))
        if json_bytes == 0:
            if len(body) > limit:
                raise _oversize(f"Raw input has a byte_size ({len(body)} bytes)", limit)
            parsed, tensor = self._raw(body)
            self._submit(parsed, RequestParameters(), [tensor])
            return
        if len(body) > limit:
            self._check_size("request JSON", json_bytes, limit)
            self._check_size("binary input", len(body) - json_bytes, limit)
        text, binary = body[:json_bytes], body[json_bytes:]
        if json_bytes > _LARGE_JSON_BYTES:
            self._handler.check_model(self._model, self._version)
            self._handler.pool.submit(
                parse_infer,
                text,
                lambda parsed, error: self.guard(lambda: self._parsed_elsewhere(parsed, error, binary)),
            )
            return
        parsed, parameters = self._handler.parse(text)
        self._take(parsed, parameters, binary)

    def _parsed_elsewhere(self, parsed: ParsedRequest | None, error: Exception | None, binary: memoryview) -> None:
        if error is not None:
            raise error
        assert parsed is not None
        self._take(parsed, sort_parameters(parsed.parameters, wrong_type), binary)

    def _take(self, parsed: ParsedRequest, parameters: RequestParameters, binary: memoryview) -> None:
        """Collect the tensors and submit the request; give shared memory back when either is refused."""
        if not parsed.uses_regions:
            self._submit(parsed, parameters, self._tensors(parsed, binary))
            return
        self._lease = lease = self._handler.memory.lease()
        try:
            tensors = self._tensors(parsed, binary)
            for output in parsed.outputs:
                if output.part is not None:
                    lease.direct(output.name, output.part)
            self._submit(parsed, parameters, tensors)
        except BaseException:
            lease.release()
            raise

    def _json_bytes(self, size: int) -> int:
        """Return how much of the body is JSON; 0 means a raw binary request."""
        value = self._exchange.headers.get(HEADER_LENGTH)
        if value is None:
            return size
        if value.isdigit() and len(value) < 10 and (length := int(value)) <= size:
            return length
        found = _INTEGER.match(value)
        text = value.decode("ascii", "replace")
        if found is None:
            sentence = f"Unable to parse Inference-Header-Content-Length, got: {text}"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        length = int(found[0][:32])
        if not -(2**31) <= length < 2**31:
            sentence = (
                "Unable to parse Inference-Header-Content-Length, value is out of range"
                f" [ {-(2**31)}, {2**31 - 1} ], got: {text}"
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if not 0 <= length <= size:
            sentence = f"inference header size should be in range (0, {size}), got: {text}"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        return length

    @staticmethod
    def _check_size(what: str, size: int, limit: int) -> None:
        if size > limit:
            sentence = (
                f"{what} size of {size} bytes exceeds the maximum allowed input size of {limit} bytes."
                " Use --http-max-input-size to increase the limit."
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)

    def _tensors(self, parsed: ParsedRequest, binary: memoryview) -> list[Tensor]:
        tensors: list[Tensor] = []
        start, end = 0, len(binary)
        limit = self._handler.max_input_bytes
        for described in parsed.inputs:
            data: memoryview | bytes | None = described.data
            if data is not None:
                if len(data) > limit:
                    raise _oversize(f"JSON input '{described.name}' has a byte_size ({len(data)} bytes)", limit)
            elif described.part is not None:
                assert self._lease is not None
                data = self._lease.read(described.part)
            else:
                stop = start + described.binary_bytes
                if stop > end:
                    sentence = (
                        f"unexpected size for input '{described.name}', expecting {stop - end}"
                        f" additional bytes for model '{self._model}'"
                    )
                    raise InferenceError(ErrorCode.INVALID_ARG, sentence)
                data = binary[start:stop]
                start = stop
            tensors.append(Tensor(described.name, described.datatype, described.shape, data))
        if start != end:
            sentence = f"unexpected additional input data for model '{self._model}'"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        return tensors

    def _raw(self, body: memoryview) -> tuple[ParsedRequest, Tensor]:
        """Return the request of a body that is nothing but the bytes of the model's only input."""
        config = self._handler.dataplane.model_config(self._model, self._version)
        if len(config.input) != 1:
            sentence = (
                "Raw request must only have 1 input (found 1) to be deduced but got"
                f" {len(config.input)} inputs in '{self._model}' model configuration"
            )
            raise request_error(ErrorCode.INVALID_ARG, "", sentence)
        only = config.input[0]
        datatype = wire_name(only.data_type)
        dims = list(only.dims)
        data: memoryview | bytes = body
        if datatype == "BYTES":
            if dims != [1]:
                sentence = f"For BYTE datatype raw input '{only.name}', the model must have input shape [1]"
                raise request_error(ErrorCode.INVALID_ARG, "", sentence)
            data = len(body).to_bytes(4, "little") + body
        elif dims.count(-1) > 1:
            sentence = (
                f"The shape of the raw input '{only.name}' can not be deduced because there are more than one"
                " variable-sized dimension"
            )
            raise request_error(ErrorCode.INVALID_ARG, "", sentence)
        elif -1 in dims:
            fixed = byte_size(datatype) or 1
            for dimension in dims:
                fixed *= 1 if dimension == -1 else dimension
            dims[dims.index(-1)] = len(body) // fixed if fixed else 0
        shape = (1, *dims) if config.max_batch_size > 0 else tuple(dims)
        described = ParsedInput(only.name, datatype, shape, len(data), None)
        return ParsedRequest("", (described,), (), {}, is_binary=True), Tensor(only.name, datatype, shape, data)

    def _submit(self, parsed: ParsedRequest, parameters: RequestParameters, tensors: list[Tensor]) -> None:
        self._parsed = parsed
        lease = self._lease
        on_response = self.on_response if lease is None else lease.until_final(self.on_response)
        request = InferenceRequest(self._model, self._version, tensors, on_response, parsed.id)
        request.refuse_decoupled = REFUSE_DECOUPLED
        request.outputs = parsed.wanted
        if parsed.is_description:
            request.alike = parsed
        if parsed.parameters:
            parameters.apply(request)
        exchange = self._exchange
        if self._handler.forwarding is not None:
            request.parameters = {**request.parameters, **self._handler.forwarding.collect(exchange.fields)}
        if STICKY_HEADER in exchange.headers:
            request.sticky_key = exchange.headers[STICKY_HEADER].decode("utf-8", "replace")
        exchange.on_disconnect = request.cancel
        request.trace = exchange.trace
        self._handler.dataplane.infer(request)

    # -- response

    def on_response(self, response: InferenceResponse) -> None:
        """Called by the dataplane."""
        exchange = self._exchange
        if exchange.disconnected or exchange.done:
            return
        if exchange.trace is not None:
            exchange.trace.mark("INFER_RESPONSE_COMPLETE", time.monotonic_ns())
        if response.error is not None:
            respond_failure(exchange, response.error)
            return
        if not response.final or response.flag_only or self._single is not None:
            self._single = self._single or SingleResponse()
            try:
                merged = self._single.add(response)
            except InferenceError as error:
                respond_failure(exchange, error)
                return
            if merged is None:
                return
            response = merged
        parsed = self._parsed
        assert parsed is not None
        if parsed.is_description and b"accept-encoding" not in exchange.headers:
            found = self._handler.encoder.encode_alike(response, parsed)
            if found is not None:
                exchange.respond_with(*found)
                return
        self.guard(lambda: self._encode(response))

    def _encode(self, response: InferenceResponse) -> None:
        handler, parsed = self._handler, self._parsed
        assert parsed is not None
        outputs = choose_outputs(
            response, parsed.outputs, parsed.is_binary, handler.dataplane.output_classes, self._lease
        )
        as_json = [output.tensor for output in outputs if not output.is_binary]
        size = sum(len(tensor.data) for tensor in as_json)
        if size <= LARGE_JSON_BYTES:
            self._send(handler.encoder.encode(response, outputs))
            return
        described = [(tensor.name, tensor.datatype, len(tensor.data)) for tensor in as_json]
        data = b"".join(tensor.data for tensor in as_json)
        handler.pool.submit(
            partial(write_all_data, described),
            data,
            lambda texts, error: self.guard(lambda: self._encoded_elsewhere(response, outputs, texts, error)),
        )

    def _encoded_elsewhere(
        self,
        response: InferenceResponse,
        outputs: list[Chosen],
        texts: list[bytes] | None,
        error: Exception | None,
    ) -> None:
        if error is not None:
            raise error
        assert texts is not None
        remaining = iter(texts)
        in_order = [None if output.is_binary else next(remaining) for output in outputs]
        self._send(self._handler.encoder.encode(response, outputs, in_order))

    def _send(self, encoded: EncodedResponse) -> None:
        exchange = self._exchange
        headers = infer_headers(encoded.json_bytes if encoded.has_binary else None)
        accept = exchange.headers.get(b"accept-encoding")
        encoding = choose_encoding(accept) if accept else b""
        size = sum(map(len, encoded.body)) if encoding else 0
        if size < MIN_COMPRESSED_BYTES:
            exchange.respond(200, headers, encoded.body)
            return
        headers = (*headers, (b"content-encoding", encoding))
        if size <= _LARGE_COMPRESSED_BYTES:
            exchange.respond(200, headers, [compress(encoding, encoded.body)])
            return
        future = asyncio.get_running_loop().run_in_executor(None, compress, encoding, encoded.body)
        future.add_done_callback(lambda done: self.guard(lambda: self._respond(headers, done.result())))

    def _respond(self, headers: Headers, body: Buffer) -> None:
        self._exchange.respond(200, headers, [body])


def _oversize(what: str, limit: int) -> InferenceError:
    sentence = (
        f"{what} that exceeds the maximum allowed value of {limit} bytes."
        " Use --http-max-input-size to increase the limit."
    )
    return InferenceError(ErrorCode.INVALID_ARG, sentence)
