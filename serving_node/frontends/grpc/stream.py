"""ModelStreamInfer: any number of requests on one call, each with its responses.

Source: Triton's stream_infer_handler.cc.
"""

from __future__ import annotations

import logging
from collections import deque

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.varint import encode_varint
from serving_node.frontends.grpc.codec import LargeDescription, MalformedMessage, contents_to_raw, request_id
from serving_node.frontends.grpc.infer import STOPPING, InferService
from serving_node.frontends.grpc.status import STATUS_OF
from serving_node.wire.grpc import UNPARSABLE, Buffer, GrpcCall, GrpcStatus, MessageHandler

_log = logging.getLogger(__name__)

# Requests of one stream that may be unanswered before the client gets no more credit.
_MAX_PENDING = 256
# Bytes of answers that may wait before the client's further requests are left alone, and before the call ends.
_MANY_QUEUED_BYTES = 16 * 1024 * 1024
_MAX_QUEUED_BYTES = 256 * 1024 * 1024
_NOT_READING = "the client does not read the responses"
# A client that sends this wants the stream to end with the status of the first request that a model fails.
_REAL_STATUS = b"triton_grpc_error"
_FINAL_KEY = "triton_final_response"


def _final_field(value: bool) -> bytes:
    message = pb.ModelInferResponse()
    message.parameters[_FINAL_KEY].bool_param = value
    return message.SerializeToString()


_FINAL = {value: _final_field(value) for value in (False, True)}

Message = tuple[list[Buffer], int]


def open_stream(service: InferService, call: GrpcCall) -> MessageHandler:
    """Begin a call and return what takes its messages."""
    return _Session(service, call).take


class _Slot:
    """One request of a stream, and its responses while earlier requests are unanswered."""

    __slots__ = ("ended", "held", "id", "keep_empty_final", "request", "session")

    def __init__(self, session: _Session) -> None:
        self.session = session
        self.request: InferenceRequest | None = None
        self.id = ""
        self.held: list[Message] = []
        self.ended = False
        self.keep_empty_final = False

    def on_response(self, response: InferenceResponse) -> None:
        """Called by the dataplane."""
        self.session.on_response(self, response)

    def empty(self, *, final: bool, error: str = "") -> Message:
        """Return a response that says which request it belongs to, and nothing of its outputs."""
        message = pb.ModelStreamInferResponse(error_message=error)
        message.infer_response.id = self.id
        if self.request is not None:
            message.infer_response.model_name = self.request.model_name
            message.infer_response.model_version = self.request.model_version
            message.infer_response.parameters[_FINAL_KEY].bool_param = final
        raw = message.SerializeToString()
        return [raw], len(raw)


class _Session:
    """One ModelStreamInfer call.

    Requests for models with one response are answered in their order; responses of decoupled models go out as they
    come. Errors are messages of the stream, which goes on after them, unless the client wants the real status.
    """

    def __init__(self, service: InferService, call: GrpcCall) -> None:
        self._service = service
        self._call = call
        self._answers = service.answers(call)
        self._slots: deque[_Slot] = deque()
        self._half_closed = False
        self._holding = False
        self._wants_status = call.metadata.get(_REAL_STATUS) == b"true"
        call.on_half_close = self._on_half_close
        call.on_cancel = self._on_cancel

    # -- requests

    def take(self, call: GrpcCall, message: bytes | memoryview) -> None:
        """Start one request."""
        slot = _Slot(self)
        self._slots.append(slot)
        try:
            self._start(slot, message)
        except LargeDescription:
            slot.id = request_id(message)
            call.hold()
            pool = self._service.pool
            try:
                pool.submit(contents_to_raw, message, lambda raw, error: self._converted(slot, raw, error))
            except InferenceError as error:
                self._refuse(slot, error.message)
                call.release()
        self._hold_or_release()

    def _start(self, slot: _Slot, message: bytes | memoryview) -> None:
        """Submit a request. Raises LargeDescription."""
        service = self._service
        try:
            if service.stopping:
                slot.id = request_id(message)
                raise InferenceError(ErrorCode.UNAVAILABLE, STOPPING)
            try:
                request, parameters = service.codec.decode(message, slot.on_response)
            except InferenceError:
                slot.id = request_id(message)
                raise
            slot.id = request.id
            slot.keep_empty_final = parameters.empty_final
            slot.request = request
            service.prepare(request, self._call)
            service.dataplane.infer(request)
        except InferenceError as error:
            self._refuse(slot, error.message)
        except MalformedMessage:
            self._on_cancel()
            self._call.finish(GrpcStatus.INTERNAL, UNPARSABLE)
        except LargeDescription:
            raise
        except Exception:
            _log.exception("gRPC infer failed")
            self._refuse(slot, "internal error")

    def _converted(self, slot: _Slot, message: bytes | None, error: Exception | None) -> None:
        """Go on with a request whose typed contents were converted in another process."""
        if self._call.done:
            return
        if isinstance(error, InferenceError):
            self._refuse(slot, error.message)
        elif message is None:
            self._on_cancel()
            self._call.finish(GrpcStatus.INTERNAL, UNPARSABLE)
        else:
            self._start(slot, message)
        self._call.release()

    def _refuse(self, slot: _Slot, text: str) -> None:
        """Answer a request that no model has got. The stream goes on."""
        if slot.request is not None and slot.request.lease is not None:
            slot.request.lease.release()
        if slot.request is not None and slot.request.trace is not None:
            slot.request.trace.finish()
        slot.request = None
        self._send(slot, slot.empty(final=True, error=text), final=True)

    # -- responses

    def on_response(self, slot: _Slot, response: InferenceResponse) -> None:
        """Send one response of a request."""
        if self._call.done or slot.ended:
            return
        error = response.error
        if error is not None:
            if self._wants_status:
                self._on_cancel()
                self._call.finish(STATUS_OF[error.code], error.message)
                return
            message = slot.empty(final=response.final, error=error.message)
        elif response.flag_only:
            if not slot.keep_empty_final:
                self._end(slot)
                return
            message = slot.empty(final=True)
        else:
            message = self._encode(slot, response)
        self._send(slot, message, final=response.final)

    def _encode(self, slot: _Slot, response: InferenceResponse) -> Message:
        assert slot.request is not None
        try:
            parts, size = self._service.codec.encode(slot.request, response, _FINAL[response.final])
        except InferenceError as error:
            return slot.empty(final=response.final, error=error.message)
        except Exception:
            _log.exception("gRPC response cannot be encoded")
            return slot.empty(final=response.final, error="internal error")
        # field 2 of ModelStreamInferResponse: length, bytes
        prefix = b"\x12" + encode_varint(size)
        return [prefix, *parts], size + len(prefix)

    def _send(self, slot: _Slot, message: Message, *, final: bool) -> None:
        if self._slots[0] is slot or (slot.request is not None and slot.request.decoupled):
            self._answers.send(*message)
        else:
            slot.held.append(message)
        if final:
            self._end(slot)
        if self._answers.queued_bytes > _MAX_QUEUED_BYTES:
            # a decoupled model outruns a client that does not read
            self._on_cancel()
            self._call.finish(GrpcStatus.RESOURCE_EXHAUSTED, _NOT_READING)

    def _end(self, slot: _Slot) -> None:
        slot.ended = True
        slot.request = None  # they refer to each other: without this, tensors would wait for the cycle collector
        slots = self._slots
        while slots:
            first = slots[0]
            for message in first.held:
                self._answers.send(*message)
            first.held = []
            if not first.ended:
                break
            slots.popleft()
        self._hold_or_release()
        if self._half_closed and not slots:
            self._answers.finish(GrpcStatus.OK)

    # -- the call

    def _hold_or_release(self) -> None:
        """Take requests only while few of them, and few bytes of answers, wait."""
        call, waiting = self._call, len(self._slots)
        if call.done:
            return
        if not self._holding:
            if waiting >= _MAX_PENDING or call.queued_bytes > _MANY_QUEUED_BYTES:
                self._holding = True
                call.hold()
                call.when_drained(self._hold_or_release)
        elif waiting < _MAX_PENDING // 2 and call.queued_bytes <= _MANY_QUEUED_BYTES:
            self._holding = False
            call.release()

    def _on_half_close(self) -> None:
        self._half_closed = True
        if not self._slots:
            self._answers.finish(GrpcStatus.OK)

    def _on_cancel(self) -> None:
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.request is not None and not slot.ended:
                slot.request.cancel()
