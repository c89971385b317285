"""Traces to files, off the event loop, with a bound on what waits.

Source: Triton's trace files. One difference: the file is a whole JSON document after every write, not only at the end.
"""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import structlog

from serving_node.core.errors import InferenceError
from serving_node.observability.tracing.rows import Row, TensorRow, render_rows
from serving_node.observability.tracing.settings import TraceSetting

log = structlog.get_logger(__name__)

# What may wait for the disk, and what may wait in memory for a file to be full.
_MAX_QUEUED_BYTES = 64 * 1024 * 1024
_ROW_BYTES = 256


class TraceFile:
    """Writes finished traces to ``path``, or to ``path.<index>`` when the setting asks for files of so many traces.

    Concurrency: ``submit``, ``release`` and ``close`` are called on the event loop and never wait for the disk; the
    thread starts with the first trace.
    """

    def __init__(self, path: str, max_queued_bytes: int = _MAX_QUEUED_BYTES) -> None:
        self._path = path
        self._max_queued_bytes = max_queued_bytes
        self._queue: SimpleQueue[tuple[TraceSetting, int, list[Row] | None, int] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._queued_bytes = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None
        # the writer's
        self._main: BinaryIO | None = None
        self._index = 0
        self._waiting: dict[int, TraceSetting] = {}
        self._has_failed = False

    def submit(self, setting: TraceSetting, trace_id: int, rows: list[Row]) -> None:
        """Hand over a finished trace; dropped, and counted, when the disk does not keep up."""
        size = sum(_ROW_BYTES + (len(row.tensor.data) if isinstance(row, TensorRow) else 0) for row in rows)
        with self._lock:
            if self._queued_bytes and self._queued_bytes + size > self._max_queued_bytes:
                self._dropped += 1
                if self._dropped == 1:
                    log.warning("trace.dropped", file=self._path, reason="the disk does not keep up")
                return
            self._queued_bytes += size
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trace-file", daemon=True)
            self._thread.start()
        self._queue.put((setting, trace_id, rows, size))

    def release(self, setting: TraceSetting) -> None:
        """Write what waits under a setting that is not in force any more."""
        if self._thread is not None:
            self._queue.put((setting, 0, None, 0))

    def close(self) -> threading.Thread | None:
        """Write everything and end. Returns the thread to join, None when there is none."""
        thread = self._thread
        if thread is not None:
            self._queue.put(None)
        if self._dropped:
            log.warning("trace.dropped_in_all", file=self._path, traces=self._dropped)
        return thread

    # -- on the writer's thread

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            setting, trace_id, rows, size = item
            if rows is not None:
                self._collect(setting, trace_id, rows)
            elif setting.group:
                self._write(setting, indexed=setting.log_frequency > 0)
            with self._lock:
                self._queued_bytes -= size
        for setting in list(self._waiting.values()):
            self._write(setting, indexed=setting.log_frequency > 0)
        if self._main is not None:
            self._main.close()

    def _collect(self, setting: TraceSetting, trace_id: int, rows: list[Row]) -> None:
        try:
            setting.group.append(render_rows(trace_id, rows))
        except (InferenceError, ValueError) as error:
            log.warning("trace.unreadable", trace=trace_id, reason=str(error))
        setting.collected += 1
        self._waiting[id(setting)] = setting
        frequency = setting.log_frequency
        is_last = setting.count == 0 and setting.collected >= setting.created
        if is_last or (frequency and len(setting.group) >= frequency):
            self._write(setting, indexed=True)
        elif setting.released or (not frequency and setting.count < 0) or self._is_heavy(setting):
            self._write(setting, indexed=frequency > 0)

    def _is_heavy(self, setting: TraceSetting) -> bool:
        return sum(map(len, setting.group)) > self._max_queued_bytes

    def _write(self, setting: TraceSetting, *, indexed: bool) -> None:
        self._waiting.pop(id(setting), None)
        text, setting.group = b",".join(setting.group), []
        if not text:
            return
        path = self._path
        try:
            if indexed:
                path, self._index = f"{self._path}.{self._index}", self._index + 1
                Path(path).write_bytes(b"[" + text + b"]")
            elif self._main is None:
                self._main = Path(path).open("wb", buffering=0)  # noqa: SIM115  open until the end
                self._main.write(b"[" + text + b"]")
            else:
                self._main.seek(-1, 2)
                self._main.write(b"," + text + b"]")
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                log.exception("trace.write_failed", file=path, reason=error.strerror)
