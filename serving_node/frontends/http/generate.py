"""POST .../generate and .../generate_stream: plain JSON in, one JSON object or a stream of events out.

The status of a stream is that of its first response; errors after it are events. When the client leaves, its request
is cancelled; a client that reads too slowly is cut off by the connection's limit on unsent output.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.dataplane import DataPlane
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.http.answers import JSON_HEADERS, respond_error, respond_failure
from serving_node.frontends.http.first_request import serve_when_loaded
from serving_node.frontends.http.generate_codec import (
    GenerateCall,
    parse_generate,
    write_error,
    write_generate,
    write_large_generate,
)
from serving_node.frontends.http.response_codec import LARGE_JSON_BYTES
from serving_node.frontends.http_status import HTTP_STATUS_OF
from serving_node.frontends.parameters import STICKY_HEADER
from serving_node.frontends.tracing import begin_http_trace
from serving_node.wire.exchange import Headers, HttpExchange

_log = logging.getLogger(__name__)

_LARGE_JSON_BYTES = 1024 * 1024
_EVENT_HEADERS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)
_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various"
    " number of responses"
)


class GenerateHandler:
    """Serves generate requests of all models from one dataplane."""

    def __init__(
        self, dataplane: DataPlane, pool: CodecPool, max_input_bytes: int, forwarding: HeaderForwarding | None = None
    ) -> None:
        self._dataplane = dataplane
        self._pool = pool
        self._max_input_bytes = max_input_bytes
        self._forwarding = forwarding

    def serve(self, exchange: HttpExchange, model: str, version: str) -> None:
        """Answer with the one response of the model. Raises InferenceError for what is wrong with the request."""
        self._start(exchange, model, version, _Single(exchange, self._pool))

    def serve_stream(self, exchange: HttpExchange, model: str, version: str) -> None:
        """Answer with an event for each response. Raises InferenceError for what is wrong with the request."""
        self._start(exchange, model, version, _Stream(exchange, self._pool))

    def _start(self, exchange: HttpExchange, model: str, version: str, answer: _Single | _Stream) -> None:
        if self._dataplane.tracing is not None:
            begin_http_trace(exchange, self._dataplane.tracing, model)
        try:
            inputs = self._dataplane.model_metadata(model, version).inputs
        except InferenceError:
            serve = partial(self._start, exchange, model, version, answer)
            if not serve_when_loaded(self._dataplane, exchange, model, serve):
                raise
            return
        if exchange.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            sentence = "Unsupported content-encoding, only 'identity' is supported."
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        size, limit = len(exchange.body), self._max_input_bytes
        if size > limit:
            sentence = (
                f"request JSON size of {size} bytes exceeds the maximum allowed input size of {limit} bytes."
                " Use --http-max-input-size to increase the limit."
            )
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        if size <= _LARGE_JSON_BYTES:
            self._submit(exchange, model, version, answer, parse_generate(inputs, limit, exchange.body))
            return

        def take(call: GenerateCall | None, error: Exception | None) -> None:
            _guard(exchange, lambda: self._take(exchange, model, version, answer, call, error))

        self._pool.submit(partial(parse_generate, inputs, limit), exchange.body, take)

    def _take(
        self,
        exchange: HttpExchange,
        model: str,
        version: str,
        answer: _Single | _Stream,
        call: GenerateCall | None,
        error: Exception | None,
    ) -> None:
        if error is not None:
            raise error
        assert call is not None
        self._submit(exchange, model, version, answer, call)

    def _submit(
        self, exchange: HttpExchange, model: str, version: str, answer: _Single | _Stream, call: GenerateCall
    ) -> None:
        request = InferenceRequest(model, version, list(call.tensors.values()), answer.on_response, call.id)
        request.parameters = call.parameters
        if self._forwarding is not None:
            request.parameters = {**call.parameters, **self._forwarding.collect(exchange.fields)}
        if STICKY_HEADER in exchange.headers:
            request.sticky_key = exchange.headers[STICKY_HEADER].decode("utf-8", "replace")
        exchange.on_disconnect = request.cancel
        request.trace = exchange.trace
        self._dataplane.infer(request)


class _Written:
    """The text of one response, once it is written. An empty one stands for a response that is only a flag."""

    __slots__ = ("is_done", "is_last", "status", "text")

    def __init__(self, *, is_last: bool) -> None:
        self.is_done = False
        self.is_last = is_last
        self.status, self.text = 200, b""

    def fill(self, write: Callable[[], bytes], error: Exception | None) -> None:
        """Take what ``write`` returns, or an error."""
        self.is_done = True
        try:
            if error is not None:
                raise error
            self.text = write()
        except InferenceError as failure:
            self.status, self.text = HTTP_STATUS_OF[failure.code], write_error(failure.message)


class _Answer:
    """Turns responses of a model into texts."""

    __slots__ = ("_exchange", "_has_responded", "_pool", "_waiting")

    def __init__(self, exchange: HttpExchange, pool: CodecPool) -> None:
        self._exchange = exchange
        self._pool = pool
        self._has_responded = False
        # responses behind a large one that is written elsewhere, in order
        self._waiting: deque[_Written] = deque()

    def on_response(self, response: InferenceResponse) -> None:
        """Called by the dataplane."""
        exchange = self._exchange
        if exchange.disconnected or exchange.done:
            return
        if exchange.trace is not None and not self._has_responded:
            exchange.trace.mark("INFER_RESPONSE_COMPLETE", time.monotonic_ns())
        self._has_responded = True
        _guard(exchange, lambda: self._take(response))

    def _take(self, response: InferenceResponse) -> None:
        written = _Written(is_last=response.final)
        if sum(len(tensor.data) for tensor in response.outputs) > LARGE_JSON_BYTES:
            self._write_elsewhere(response, written)
        else:
            written.fill(lambda: b"" if response.flag_only else write_generate(response), response.error)
        if self._waiting or not written.is_done:
            self._waiting.append(written)
        else:
            self._send(written.status, written.text, is_last=written.is_last)

    def _write_elsewhere(self, response: InferenceResponse, written: _Written) -> None:
        def done(text: bytes | None, error: Exception | None) -> None:
            _guard(self._exchange, lambda: self._finish(written, text or b"", error))

        described = [(tensor.name, tensor.datatype, tensor.shape, len(tensor.data)) for tensor in response.outputs]
        head = (response.model_name, response.model_version, response.id, response.parameters)
        data = b"".join(tensor.data for tensor in response.outputs)
        try:
            self._pool.submit(partial(write_large_generate, *head, described), data, done)
        except InferenceError as error:
            written.fill(lambda: b"", error)

    def _finish(self, written: _Written, text: bytes, error: Exception | None) -> None:
        written.fill(lambda: text, error)
        while self._waiting and self._waiting[0].is_done and not self._exchange.disconnected:
            written = self._waiting.popleft()
            self._send(written.status, written.text, is_last=written.is_last)

    def _send(self, status: int, text: bytes, *, is_last: bool) -> None:
        """Send the text of one response; an empty one stands for a response that is only a flag."""
        raise NotImplementedError


class _Single(_Answer):
    """Waits for the end of all responses; there must have been one."""

    __slots__ = ("_count", "_first")

    def __init__(self, exchange: HttpExchange, pool: CodecPool) -> None:
        super().__init__(exchange, pool)
        self._count = 0
        self._first = (200, b"")

    def _send(self, status: int, text: bytes, *, is_last: bool) -> None:
        if text:
            if not self._count:
                self._first = (status, text)
            self._count += 1
        if not is_last:
            return
        if self._count != 1:
            raise InferenceError(ErrorCode.INTERNAL, _NOT_ONE)
        status, text = self._first
        self._exchange.respond(status, JSON_HEADERS, [text])


class _Stream(_Answer):
    """Sends an event for each response."""

    __slots__ = ()

    def _send(self, status: int, text: bytes, *, is_last: bool) -> None:
        exchange = self._exchange
        if not exchange.streaming:
            exchange.start_stream(status, _EVENT_HEADERS)
        if text:
            exchange.send_chunk(b"data: %b\n\n" % text)
        if is_last and not exchange.disconnected:
            exchange.end_stream()


def _guard(exchange: HttpExchange, stage: Callable[[], None]) -> None:
    """Run a stage that is not under the eyes of the frontend's own error handling."""
    if exchange.disconnected:
        return
    try:
        stage()
    except InferenceError as error:
        respond_failure(exchange, error)
    except Exception:
        _log.exception("generate over HTTP failed")
        if exchange.streaming:
            exchange.abort()
        elif not exchange.done:
            respond_error(exchange, 500, "internal error")
