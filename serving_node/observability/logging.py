"""One line per event on one stream; the last lines stay in memory for the admin port.

Everything goes through the standard library's root logger, so that libraries' lines look like ours.
Source of the settings' names and of the text formats: Triton's logging extension.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog

from serving_node.observability.log_settings import LogFormat, check

__all__ = ["LogBuffer", "LogControl", "LogFormat", "configure_logging"]

_SECRET_WORDS = ("token", "secret", "password", "authorization", "api_key")
_LINE_LIMIT = 4000
_SETTINGS_OF_LEVEL = ((logging.ERROR, "log_error"), (logging.WARNING, "log_warning"), (logging.INFO, "log_info"))


class LogBuffer:
    """The last lines of the log. Safe on any thread."""

    def __init__(self, capacity: int = 2000) -> None:
        self._lines: deque[str] = deque(maxlen=capacity)

    def append(self, line: str) -> None:
        """Keep a line, cut to a bounded length."""
        self._lines.append(line[:_LINE_LIMIT])

    def tail(self, count: int) -> list[str]:
        """Return the newest ``count`` lines, oldest first."""
        lines = list(self._lines)
        return lines[-count:] if count > 0 else []


class LogControl:
    """The log settings of the process, changed at run time by the logging extension."""

    def __init__(
        self, buffer: LogBuffer | None = None, *, log_file: str = "", log_format: LogFormat = LogFormat.DEFAULT
    ) -> None:
        self.buffer = buffer or LogBuffer()
        # Whether every request gets a line; here because it is looked at for every request.
        self.verbose = False
        self._settings: dict[str, Any] = {
            "log_file": log_file,
            "log_info": True,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": 0,
            "log_format": log_format.value,
        }

    def settings(self) -> dict[str, Any]:
        """Return all settings."""
        return dict(self._settings)

    def update(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Apply all changes, or none, and return all settings.

        Raises:
            InferenceError: UNSUPPORTED for the log file; INVALID_ARG for unknown names and wrong values.
        """
        check(changes)
        self._settings.update(changes)
        self.verbose = self._settings["log_verbose_level"] > 0
        logging.getLogger().setLevel(logging.DEBUG if self.verbose else logging.INFO)
        return self.settings()

    def lets_pass(self, level: int) -> bool:
        """Return whether lines of this level are written."""
        for floor, name in _SETTINGS_OF_LEVEL:
            if level >= floor:
                return bool(self._settings[name])
        return bool(self._settings["log_verbose_level"])


def configure_logging(
    *,
    control: LogControl | None = None,
    stream: TextIO | None = None,
    verbose: bool = False,
) -> LogControl:
    """Route structlog and the standard library to one stream (standard error by default). Call once at start."""
    control = control or LogControl()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.format_exc_info,
        _hide_secrets,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[_Line(control)],
    )
    handler = _StreamAndBuffer(stream or sys.stderr, control)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, _StreamAndBuffer):
            root.removeHandler(old)
    root.addHandler(handler)
    if verbose:
        control.update({"log_verbose_level": 1})
    else:
        root.setLevel(logging.INFO)
    return control


class _StreamAndBuffer(logging.Handler):
    """Writes a line to the stream and keeps it in the buffer."""

    def __init__(self, stream: TextIO, control: LogControl) -> None:
        super().__init__()
        self._stream = stream
        self._control = control

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging, from any thread."""
        if not self._control.lets_pass(record.levelno):
            return
        try:
            line = self.format(record)
            self._control.buffer.append(line)
            self._stream.write(line + "\n")
            self._stream.flush()
        except Exception:
            self.handleError(record)


def _hide_secrets(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if any(word in key.lower() for word in _SECRET_WORDS):
            event[key] = "***"
    return event


class _Line:
    """Writes one line in the format that the settings ask for."""

    def __init__(self, control: LogControl) -> None:
        self._control = control

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        fields = dict(event)
        record: logging.LogRecord = fields.pop("_record")
        fields.pop("_from_structlog", None)
        time = datetime.fromtimestamp(record.created, UTC)
        log_format = self._control.settings()["log_format"]
        if log_format == LogFormat.JSON:
            fields["time"] = f"{time:%Y-%m-%dT%H:%M:%S.%fZ}"
            return json.dumps(fields, default=str, ensure_ascii=False)
        initial = "V" if record.levelno < logging.INFO else record.levelname[0]
        head = (
            f"{time:%Y-%m-%dT%H:%M:%SZ} {initial}"
            if log_format == LogFormat.ISO8601
            else f"{initial}{time:%m%d %H:%M:%S.%f}"
        )
        message = _quoted(str(fields.pop("event", "")))
        for known in ("level", "logger"):
            fields.pop(known, None)
        texts = [f"{key}={_plain(value)}" for key, value in fields.items()]
        return " ".join([f"{head} {record.process} {record.filename}:{record.lineno}] {message}", *texts])


def _plain(value: Any) -> str:
    """Return the value on one line: what clients send must not be able to fake a line of the log."""
    text = str(value)
    return text if text.isprintable() else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())
