"""Which requests are traced, and what becomes of their traces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from serving_node.core.tensor import Tensor
from serving_node.core.trace import RequestTrace
from serving_node.observability.tracing.options import TraceLevel, TraceMode, TraceOptions
from serving_node.observability.tracing.rows import BeginRow, Row, TensorRow, TimeRow
from serving_node.observability.tracing.settings import TraceChanges, TraceSetting, TraceSettings
from serving_node.observability.tracing.trace_file import TraceFile

log = structlog.get_logger(__name__)

# Rows of one trace: a stream that sends for hours must not fill the memory.
_MAX_ROWS = 4096
# Tensors are copied on the event loop, which must not stand still for long.
_MAX_TENSOR_BYTES = 16 * 1024 * 1024


class SpanSource(Protocol):
    """Where spans are made when traces go to OpenTelemetry."""

    def parent(self, headers: Mapping[bytes, bytes]) -> object | None:
        """Return the context that the caller's headers carry, None without one."""

    def start(self, setting: TraceSetting, new_id: Callable[[], int], parent: object | None) -> RequestTrace:
        """Begin the trace of one request. ``new_id`` numbers it, and those of requests that are made for it."""

    def close(self, timeout_seconds: float) -> None:
        """Export what waits and end. Blocks for at most that long."""


class TracingUnavailable(Exception):
    """The mode needs what is not installed. One sentence."""


def open_tracer(options: TraceOptions) -> Tracer:
    """Return the tracer of a node. Raises TracingUnavailable."""
    if options.mode is TraceMode.TRITON:
        if options.level and not options.file:
            log.warning("trace.without_file", hint="nothing is traced without --trace-config triton,file=PATH")
        return Tracer(options)
    try:
        from serving_node.observability.tracing.spans import OpenTelemetrySpans
    except ImportError as error:
        sentence = f"--trace-config mode=opentelemetry needs OpenTelemetry ({error}): install flotilla[otel]"
        raise TracingUnavailable(sentence) from error
    return Tracer(options, OpenTelemetrySpans(options.opentelemetry))


class Tracer:
    """Samples requests by the settings of their models. All methods run on the event loop."""

    def __init__(self, options: TraceOptions | None = None, spans: SpanSource | None = None) -> None:
        self._settings = TraceSettings(options or TraceOptions())
        self._spans = spans
        self._file = TraceFile(options.file if options else "")
        self._has_place = spans is not None or bool(options and options.file)
        self._last_id = 0

    @property
    def enabled(self) -> bool:
        """Tell whether any request may be traced."""
        return self._has_place and self._settings.enabled

    def start(self, model: str, headers: Mapping[bytes, bytes]) -> RequestTrace | None:
        """Return the trace of a request, None when it is not traced. ``headers`` have lower-case names."""
        setting = self._settings.of(model)
        if not setting.level:
            return None
        if self._spans is None:
            if not setting.sample(forced=False):
                return None
            return FileTrace(self._file, setting, self._new_id)
        parent = self._spans.parent(headers) if b"traceparent" in headers else None
        if not setting.sample(forced=parent is not None):
            return None
        return self._spans.start(setting, self._new_id, parent)

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def settings(self, model: str) -> dict[str, list[str]]:
        """Return the settings of a model, or of the server for an empty name."""
        return self._settings.describe(model)

    def update(self, model: str, changes: TraceChanges) -> None:
        """Change settings. Raises InferenceError and changes nothing."""
        if changes:
            for setting in self._settings.update(model, changes):
                self._file.release(setting)

    async def close(self, timeout_seconds: float) -> None:
        """Write and export everything that is finished, within the time."""
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close, timeout_seconds)
        writer = self._file.close()
        if writer is not None:
            await asyncio.to_thread(writer.join, timeout_seconds)
            if writer.is_alive():
                log.warning("trace.not_written", reason="the disk did not keep up until the end")


class FileTrace:
    """A trace that becomes rows of the trace file. See ``RequestTrace``."""

    __slots__ = ("_began", "_ended", "_file", "_finished", "_id", "_new_id", "_parent_id", "_rows", "_setting")

    def __init__(self, file: TraceFile, setting: TraceSetting, new_id: Callable[[], int], parent_id: int = 0) -> None:
        self._file = file
        self._setting = setting
        self._new_id = new_id
        self._id = new_id()
        self._parent_id = parent_id
        self._rows: list[Row] = []
        self._began = self._ended = self._finished = False

    def begin(self, model: str, version: str, request_id: str, ns: int) -> None:
        """Note REQUEST_START."""
        self._began = True
        if TraceLevel.TIMESTAMPS in self._setting.level:
            self._rows.append(BeginRow(model, version, request_id, self._parent_id))
            self._rows.append(TimeRow("REQUEST_START", ns))

    def mark(self, activity: str, ns: int) -> None:
        """Note a timestamp."""
        if TraceLevel.TIMESTAMPS in self._setting.level and len(self._rows) < _MAX_ROWS:
            self._rows.append(TimeRow(activity, ns))

    def tensors(self, activity: str, tensors: Sequence[Tensor]) -> None:
        """Note tensors, copied; of large ones only name, shape and type."""
        if TraceLevel.TENSORS not in self._setting.level or len(self._rows) >= _MAX_ROWS:
            return
        for tensor in tensors:
            data = bytes(tensor.data) if len(tensor.data) <= _MAX_TENSOR_BYTES else b""
            copy = Tensor(tensor.name, tensor.datatype, tuple(tensor.shape), data)
            self._rows.append(TensorRow(activity, copy))

    def context(self) -> str:
        """Return nothing: the file has no context."""
        return ""

    def child(self) -> FileTrace:
        """Return the trace of a request that is made for this one."""
        self._setting.created += 1
        return FileTrace(self._file, self._setting, self._new_id, self._id)

    def end(self, ns: int) -> None:
        """Note REQUEST_END."""
        if not self._ended:
            self.mark("REQUEST_END", ns)
            self._ended = True
            if self._finished:
                self._write()

    def finish(self) -> None:
        """The frontend is through."""
        if not self._finished:
            self._finished = True
            if self._ended or not self._began:
                self._write()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        self._file.submit(self._setting, self._id, rows)
