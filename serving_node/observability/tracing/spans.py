"""Traces as OpenTelemetry spans, exported over OTLP/HTTP by a thread of the SDK with a bounded queue.

Imported only when the mode asks for it: the SDK is the extra ``otel``.
Source: Triton's OpenTelemetry mode, whose names of spans and attributes these are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson
import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, TraceFlags, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serving_node.observability.tracing.options import OpenTelemetryOptions, TraceLevel
from serving_node.observability.tracing.settings import TraceSetting

if TYPE_CHECKING:
    from serving_node.core.tensor import Tensor

log = structlog.get_logger(__name__)

_MODEL_ACTIVITIES = frozenset(("REQUEST_START", "QUEUE_START", "REQUEST_END"))
_EXPORT_SECONDS = 10.0


class OpenTelemetrySpans:
    """Makes the traces of requests. What the collector does not take in time is dropped by the SDK."""

    def __init__(self, options: OpenTelemetryOptions) -> None:
        resource = Resource.create({SERVICE_NAME: "triton-inference-server", **dict(options.resource)})
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint=options.url, timeout=_EXPORT_SECONDS)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=options.max_queue_size,
            schedule_delay_millis=options.schedule_delay_ms,
            max_export_batch_size=options.max_export_batch_size,
        )
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("triton-server")
        self._propagator = TraceContextTextMapPropagator()

    def parent(self, headers: Mapping[bytes, bytes]) -> Context | None:
        """Return the W3C context of the caller, None when it is not valid."""
        carrier = {
            name: headers[name.encode()].decode("latin-1")
            for name in ("traceparent", "tracestate")
            if name.encode() in headers
        }
        context = self._propagator.extract(carrier, Context())
        return context if get_current_span(context).get_span_context().is_valid else None

    def start(self, setting: TraceSetting, new_id: Callable[[], int], parent: object | None) -> SpanTrace:
        """Begin the root span of a request."""
        root = self.span("InferRequest", parent if isinstance(parent, Context) else Context(), time.time_ns())
        return SpanTrace(self, setting, new_id, root)

    def span(self, name: str, parent: Context, ns: int) -> Span:
        """Begin a span. ``ns`` is wall-clock time."""
        return self._tracer.start_span(name, parent, kind=SpanKind.SERVER, start_time=ns)

    @staticmethod
    def carrier(span: Span) -> str:
        """Return the W3C headers that make a span the parent of others, as JSON."""
        context = span.get_span_context()
        # of the flags only "sampled" is known to every reader
        flags = context.trace_flags & TraceFlags.SAMPLED
        headers = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"}
        if context.trace_state:
            headers["tracestate"] = context.trace_state.to_header()
        return orjson.dumps(headers).decode()

    def close(self, timeout_seconds: float) -> None:
        """Export what waits, for at most so long; the rest is dropped.

        The SDK's own methods wait for the collector much longer than they are told to.
        """
        flushing = threading.Thread(target=self._flush, name="spans-flush", daemon=True)
        flushing.start()
        flushing.join(timeout_seconds)
        if flushing.is_alive():
            log.warning("trace.not_exported", reason="the collector does not take the spans")
            self._exporter.shutdown()  # type: ignore[no-untyped-call]  # ends the attempts; the threads are daemons

    def _flush(self) -> None:
        self._processor.force_flush()
        self._provider.shutdown()


class SpanTrace:
    """A trace of three spans: InferRequest, below it the model's, below that the computation. See ``RequestTrace``."""

    __slots__ = (
        "_compute",
        "_ended",
        "_finished",
        "_has_times",
        "_id",
        "_model",
        "_new_id",
        "_offset_ns",
        "_parent_id",
        "_root",
        "_setting",
        "_spans",
    )

    def __init__(
        self,
        spans: OpenTelemetrySpans,
        setting: TraceSetting,
        new_id: Callable[[], int],
        root: Span,
        parent_id: int = 0,
    ) -> None:
        self._spans = spans
        self._setting = setting
        self._new_id = new_id
        self._id = new_id()
        self._parent_id = parent_id
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._has_times = TraceLevel.TIMESTAMPS in setting.level
        # the span above the model's; a request that is made for another one is below that one's model
        self._root = root
        self._model: Span | None = None
        self._compute: Span | None = None
        self._ended = self._finished = False

    def begin(self, model: str, version: str, request_id: str, ns: int) -> None:
        """Note REQUEST_START: the model's span begins."""
        if not self._has_times:
            return
        span = self._spans.span(model, set_span_in_context(self._root, Context()), ns + self._offset_ns)
        span.set_attribute("triton.model_name", model)
        span.set_attribute("triton.model_version", int(version))
        span.set_attribute("triton.trace_id", self._id)
        span.set_attribute("triton.trace_parent_id", self._parent_id)
        if request_id:
            span.set_attribute("triton.request_id", request_id)
        self._model = span
        self.mark("REQUEST_START", ns)

    def mark(self, activity: str, ns: int) -> None:
        """Note an event of the span that is concerned."""
        if not self._has_times:
            return
        wall_ns = ns + self._offset_ns
        span = self._root
        if self._model is not None:
            if activity in _MODEL_ACTIVITIES:
                span = self._model
            elif activity.startswith("COMPUTE_"):
                if self._compute is None:
                    self._compute = self._spans.span("compute", set_span_in_context(self._model, Context()), wall_ns)
                span = self._compute
        span.add_event(activity, timestamp=wall_ns)
        if activity == "COMPUTE_END":
            span.end(wall_ns)

    def tensors(self, activity: str, tensors: Sequence[Tensor]) -> None:
        """Note nothing: spans do not carry tensors."""

    def context(self) -> str:
        """Return the context of the model's span."""
        return self._spans.carrier(self._model) if self._model is not None else ""

    def child(self) -> SpanTrace:
        """Return the trace of a request that is made for this one: its model's span is below this one's."""
        return SpanTrace(self._spans, self._setting, self._new_id, self._model or self._root, self._id)

    def end(self, ns: int) -> None:
        """Note REQUEST_END: the model's span ends."""
        if self._ended:
            return
        self.mark("REQUEST_END", ns)
        self._ended = True
        if self._model is not None:
            self._model.end(ns + self._offset_ns)
            if self._finished:
                self._end_root()

    def finish(self) -> None:
        """The frontend is through."""
        if self._finished:
            return
        self._finished = True
        if self._ended or self._model is None:
            self._end_root()

    def _end_root(self) -> None:
        if not self._parent_id:
            self._root.end(time.monotonic_ns() + self._offset_ns)
