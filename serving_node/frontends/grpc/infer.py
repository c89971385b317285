"""ModelInfer and ModelStreamInfer."""

from __future__ import annotations

import logging
from collections import deque

from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.varint import encode_varint
from serving_node.dataplane import DataPlane
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.grpc.codec import InferCodec, LargeDescription, MalformedMessage, contents_to_raw
from serving_node.frontends.grpc.status import STATUS_OF
from serving_node.frontends.parameters import STICKY_HEADER
from serving_node.frontends.single_response import SingleResponse
from serving_node.wire.grpc import Buffer, GrpcCall, GrpcError, GrpcStatus, MessageHandler

_log = logging.getLogger(__name__)

# Requests of one stream that may be unanswered before the client gets no more credit.
_MAX_PENDING = 256
_UNPARSABLE = "Unable to parse request"
_MAX_QUEUED_BYTES = 64 * 1024 * 1024


class InferService:
    """The two infer methods over one dataplane."""

    def __init__(self, dataplane: DataPlane, pool: CodecPool) -> None:
        self.dataplane = dataplane
        self.pool = pool
        self.codec = InferCodec(lambda name, version: dataplane.model_config(name, version).max_batch_size > 0)

    def infer(self, call: GrpcCall, message: bytes | memoryview) -> None:
        """Serve ModelInfer."""
        try:
            _UnaryInfer(self, call).start(message)
        except LargeDescription:
            self.pool.submit(contents_to_raw, message, lambda raw, error: self._restart(call, raw, error))

    def open_stream(self, call: GrpcCall) -> MessageHandler:
        """Serve ModelStreamInfer."""
        return _Session(self, call).take

    def _restart(self, call: GrpcCall, message: bytes | None, error: Exception | None) -> None:
        if call.done:
            return
        try:
            if error is not None:
                raise error
            assert message is not None
            _UnaryInfer(self, call).start(message)
        except Exception as problem:
            _fail(call, problem)


class _UnaryInfer:
    """One ModelInfer call."""

    __slots__ = ("_call", "_request", "_service", "_single")

    def __init__(self, service: InferService, call: GrpcCall) -> None:
        self._service = service
        self._call = call
        self._request: InferenceRequest | None = None
        self._single: SingleResponse | None = None

    def start(self, message: bytes | memoryview) -> None:
        call = self._call
        try:
            request, _ = self._service.codec.decode(message, self.on_response)
        except MalformedMessage as error:
            raise GrpcError(GrpcStatus.INTERNAL, _UNPARSABLE) from error
        self._request = request
        request.deadline_ns = call.deadline_ns
        if STICKY_HEADER in call.metadata:
            request.sticky_key = call.metadata[STICKY_HEADER].decode("utf-8", "replace")
        call.on_cancel = request.cancel
        try:
            self._service.dataplane.infer(request)
        except BaseException:
            self._request = None
            raise

    def on_response(self, response: InferenceResponse) -> None:
        call, request = self._call, self._request
        if response.final:
            self._request = None  # they refer to each other: tensors must not wait for the cycle collector
        if call.done:
            return
        if response.error is not None:
            call.finish(STATUS_OF[response.error.code], response.error.message)
            return
        assert request is not None
        try:
            if not response.final or self._single is not None:
                self._single = self._single or SingleResponse()
                merged = self._single.add(response)
                if merged is None:
                    return
                response = merged
            parts, size = self._service.codec.encode(request, response)
        except Exception as error:
            _fail(call, error)
            return
        call.reply(parts, size)


class _Slot:
    """One request of a stream, and its responses while earlier requests are unanswered."""

    __slots__ = ("ended", "held", "id", "keep_empty_final", "request", "session", "streamed")

    def __init__(self, session: _Session) -> None:
        self.session = session
        self.request: InferenceRequest | None = None
        self.id = ""
        self.held: list[tuple[list[Buffer], int]] = []
        self.ended = False
        self.streamed = False
        self.keep_empty_final = False

    def on_response(self, response: InferenceResponse) -> None:
        self.session.on_response(self, response)


class _Session:
    """One ModelStreamInfer call.

    Requests that have one response are answered in their order; responses of decoupled models go out as they come.
    Errors are messages of the stream: it goes on after them.
    """

    def __init__(self, service: InferService, call: GrpcCall) -> None:
        self._service = service
        self._call = call
        self._slots: deque[_Slot] = deque()
        self._half_closed = False
        self._paused = False
        call.on_half_close = self._on_half_close
        call.on_cancel = self._on_cancel

    def take(self, call: GrpcCall, message: bytes | memoryview) -> None:
        """Start one request."""
        slot = _Slot(self)
        self._slots.append(slot)
        try:
            try:
                request, parameters = self._service.codec.decode(message, slot.on_response)
            except LargeDescription:  # rare, and the stream's order must be kept: convert here
                raw = contents_to_raw(bytes(message))
                request, parameters = self._service.codec.decode(raw, slot.on_response)
            slot.request = request
            slot.id = request.id
            slot.keep_empty_final = parameters.empty_final
            request.deadline_ns = call.deadline_ns
            if STICKY_HEADER in call.metadata:
                request.sticky_key = call.metadata[STICKY_HEADER].decode("utf-8", "replace")
            self._service.dataplane.infer(request)
        except InferenceError as error:
            self._send(slot, _error_message(slot.id, error.message), final=True)
        except MalformedMessage:
            self._on_cancel()
            call.finish(GrpcStatus.INTERNAL, _UNPARSABLE)
            return
        if len(self._slots) >= _MAX_PENDING and not self._paused:
            self._paused = True
            call.pause()

    def on_response(self, slot: _Slot, response: InferenceResponse) -> None:
        """Send one response of a request."""
        if self._call.done:
            return
        if response.error is not None:
            message = _error_message(slot.id, response.error.message)
        elif response.final and slot.streamed and not response.outputs and not slot.keep_empty_final:
            self._end(slot)
            return
        else:
            response.parameters["triton_final_response"] = response.final
            assert slot.request is not None
            try:
                parts, size = self._service.codec.encode(slot.request, response)
                message = _wrap(parts, size)
            except InferenceError as error:
                message = _error_message(slot.id, error.message)
        self._send(slot, message, final=response.final)

    def _send(self, slot: _Slot, message: tuple[list[Buffer], int], *, final: bool) -> None:
        if not final:
            slot.streamed = True
        if slot.streamed or self._slots[0] is slot:
            self._call.send(*message)
        else:
            slot.held.append(message)
        if final:
            self._end(slot)
        if self._call.queued_bytes > _MAX_QUEUED_BYTES and not final:
            # a decoupled model outruns a client that does not read
            self._on_cancel()
            self._call.finish(GrpcStatus.RESOURCE_EXHAUSTED, "the client does not read the responses")

    def _end(self, slot: _Slot) -> None:
        slot.ended = True
        slot.request = None  # they refer to each other: without this, tensors would wait for the cycle collector
        slots = self._slots
        while slots:
            first = slots[0]
            for message in first.held:
                self._call.send(*message)
            first.held = []
            if not first.ended:
                break
            slots.popleft()
        if self._paused and len(slots) < _MAX_PENDING // 2:
            self._paused = False
            self._call.resume()
        if self._half_closed and not slots:
            self._call.finish(GrpcStatus.OK)

    def _on_half_close(self) -> None:
        self._half_closed = True
        if not self._slots:
            self._call.finish(GrpcStatus.OK)

    def _on_cancel(self) -> None:
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.request is not None and not slot.ended:
                slot.request.cancel()


def _wrap(parts: list[Buffer], size: int) -> tuple[list[Buffer], int]:
    """Return a ModelStreamInferResponse around a serialised ModelInferResponse: field 2, length, bytes."""
    prefix = b"\x12" + encode_varint(size)
    return [prefix, *parts], size + len(prefix)


def _error_message(request_id: str, text: str) -> tuple[list[Buffer], int]:
    message = pb.ModelStreamInferResponse(error_message=text)
    message.infer_response.id = request_id
    message.infer_response.parameters["triton_final_response"].bool_param = True
    raw = message.SerializeToString()
    return [raw], len(raw)


def _fail(call: GrpcCall, error: Exception) -> None:
    if isinstance(error, InferenceError):
        call.finish(STATUS_OF[error.code], error.message)
    elif isinstance(error, GrpcError):
        call.finish(error.status, error.message)
    elif isinstance(error, MalformedMessage):
        call.finish(GrpcStatus.INTERNAL, _UNPARSABLE)
    else:
        _log.error("gRPC infer failed", exc_info=error)
        call.finish(GrpcStatus.INTERNAL, "internal error")
