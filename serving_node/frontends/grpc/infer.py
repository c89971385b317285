"""ModelInfer, and what it shares with ModelStreamInfer."""

from __future__ import annotations

import base64
import contextlib
import logging
import time
from collections.abc import Iterator

from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.dataplane import DataPlane
from serving_node.frontends.codec_pool import CodecPool
from serving_node.frontends.grpc.codec import InferCodec, LargeDescription, MalformedMessage, contents_to_raw
from serving_node.frontends.grpc.compression import AnswerCompression, CompressedAnswers
from serving_node.frontends.grpc.status import STATUS_OF
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.parameters import STICKY_HEADER
from serving_node.frontends.shared_memory import SharedMemory
from serving_node.frontends.single_response import SingleResponse
from serving_node.frontends.tracing import begin_grpc_trace
from serving_node.wire.grpc import UNPARSABLE, GrpcCall, GrpcError, GrpcStatus

_log = logging.getLogger(__name__)

# Triton's sentences.
STOPPING = "GRPC server is shutting down and has stopped accepting new requests."
_OWN_KEYS = (b"content-type", b"te")
_NO_DECOUPLED = "ModelInfer RPC doesn't support models with decoupled transaction policy"


class InferService:
    """What infer calls need, and the unary one. ``stopping``: no new requests are taken."""

    def __init__(
        self,
        dataplane: DataPlane,
        pool: CodecPool,
        *,
        forwarding: HeaderForwarding | None = None,
        compression: AnswerCompression | None = None,
        memory: SharedMemory | None = None,
    ) -> None:
        self.dataplane = dataplane
        self.pool = pool
        self.stopping = False
        self._forwarding = forwarding or None
        self.compression = compression
        self.codec = InferCodec(dataplane.output_classes, memory)

    def infer(self, call: GrpcCall, message: bytes | memoryview) -> None:
        """Serve ModelInfer."""
        if self.stopping:
            raise GrpcError(GrpcStatus.UNAVAILABLE, STOPPING)
        try:
            _UnaryInfer(self, call).start(message)
        except LargeDescription:
            self.pool.submit(contents_to_raw, message, lambda raw, error: self._restart(call, raw, error))

    def prepare(self, request: InferenceRequest, call: GrpcCall) -> None:
        """Give a request what the call's metadata say.

        Raises:
            InferenceError: INVALID_ARG, a forwarded header has a reserved name.
        """
        request.deadline_ns = call.deadline_ns
        if STICKY_HEADER in call.metadata:
            request.sticky_key = call.metadata[STICKY_HEADER].decode("utf-8", "replace")
        if self._forwarding is not None:
            request.parameters.update(self._forwarding.collect(_custom_metadata(call)))
        if self.dataplane.tracing is not None:
            begin_grpc_trace(request, call, self.dataplane.tracing)

    def answers(self, call: GrpcCall) -> GrpcCall | CompressedAnswers:
        """Return what to answer a call through."""
        return call if self.compression is None else self.compression.answers(call)

    def _restart(self, call: GrpcCall, message: bytes | None, error: Exception | None) -> None:
        if call.done:
            return
        try:
            if error is not None:
                raise error
            assert message is not None
            _UnaryInfer(self, call).start(message)
        except Exception as problem:
            fail(call, problem)


def _custom_metadata(call: GrpcCall) -> Iterator[tuple[bytes, bytes]]:
    """Yield the metadata that are not gRPC's own, each with its last value."""
    for key, value in call.metadata.items():
        if key in _OWN_KEYS or key.startswith(b"grpc-"):
            continue
        value = call.last_values.get(key, value)
        if key.endswith(b"-bin"):
            with contextlib.suppress(ValueError):
                value = base64.b64decode(value + b"=" * (-len(value) % 4))
        yield key, value


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
            raise GrpcError(GrpcStatus.INTERNAL, UNPARSABLE) from error
        self._request = request
        request.refuse_decoupled = _NO_DECOUPLED
        try:
            self._service.prepare(request, call)
            call.on_cancel = request.cancel
            self._service.dataplane.infer(request)
        except BaseException:
            self._request = None
            if request.lease is not None:
                request.lease.release()
            if request.trace is not None:
                request.trace.finish()
            raise

    def on_response(self, response: InferenceResponse) -> None:
        call, request = self._call, self._request
        if response.final:
            self._request = None  # they refer to each other: tensors must not wait for the cycle collector
        if call.done:
            return
        try:
            if not response.final or response.flag_only or self._single is not None:
                self._single = self._single or SingleResponse()
                merged = self._single.add(response)
                if merged is None:
                    return
                response = merged
            if response.error is not None:  # not raised: its traceback would hold this frame, and so the tensors
                fail(call, response.error)
                return
            assert request is not None
            parts, size = self._service.codec.encode(request, response)
        except Exception as error:
            fail(call, error)
            return
        if self._service.compression is None:
            call.reply(parts, size)
        else:
            self._service.answers(call).reply(parts, size)


def fail(call: GrpcCall, error: Exception) -> None:
    """End a call with the status that belongs to an error, or to its deadline when that has passed."""
    if call.deadline_ns and time.monotonic_ns() >= call.deadline_ns:
        call.expire()
    elif isinstance(error, InferenceError):
        call.finish(STATUS_OF[error.code], error.message)
    elif isinstance(error, GrpcError):
        call.finish(error.status, error.message)
    elif isinstance(error, MalformedMessage):
        call.finish(GrpcStatus.INTERNAL, UNPARSABLE)
    else:
        _log.error("gRPC infer failed", exc_info=error)
        call.finish(GrpcStatus.INTERNAL, "internal error")
