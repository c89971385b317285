"""What the command line says about tracing. Pure. Source: tritonserver's --trace-config and the trace-* flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, StrEnum
from typing import Any


class TraceLevel(Flag):
    """What is traced."""

    OFF = 0
    TIMESTAMPS = 1
    TENSORS = 2

    def names(self) -> list[str]:
        """Return the names as the trace extension lists them."""
        return [level.name or "" for level in (TraceLevel.TIMESTAMPS, TraceLevel.TENSORS) if level in self] or ["OFF"]


class TraceMode(StrEnum):
    """Where traces go: a file in Triton's format, or OpenTelemetry's collector."""

    TRITON = "triton"
    OPENTELEMETRY = "opentelemetry"


_LEVEL_WORDS = {
    **dict.fromkeys(("false", "off"), TraceLevel.OFF),
    **dict.fromkeys(("true", "on", "min", "max", "timestamps"), TraceLevel.TIMESTAMPS),
    "tensors": TraceLevel.TENSORS,
}


@dataclass(frozen=True, slots=True)
class OpenTelemetryOptions:
    """Where spans go, and how they are batched. Delay in milliseconds. ``given`` is what the user set, as text."""

    url: str = "http://localhost:4318/v1/traces"
    resource: tuple[tuple[str, str], ...] = ()
    max_queue_size: int = 2048
    schedule_delay_ms: int = 5000
    max_export_batch_size: int = 512
    given: tuple[tuple[str, str], ...] = ()

    def settings(self) -> dict[str, str]:
        """Return what the trace extension shows besides the common settings: what was given, and batch settings."""
        shown = dict(self.given)
        shown.setdefault("bsp_schedule_delay", str(self.schedule_delay_ms))
        shown.setdefault("bsp_max_export_batch_size", str(self.max_export_batch_size))
        shown.setdefault("bsp_max_queue_size", str(self.max_queue_size))
        return shown


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """The trace settings at the start. ``count`` -1 is no limit; ``log_frequency`` 0 is one file for all."""

    mode: TraceMode = TraceMode.TRITON
    level: TraceLevel = TraceLevel.OFF
    rate: int = 1000
    count: int = -1
    file: str = ""
    log_frequency: int = 0
    opentelemetry: OpenTelemetryOptions = field(default_factory=OpenTelemetryOptions)


def read_trace_config(text: str) -> tuple[str, str, str]:
    """Read ``setting=value`` or ``mode,setting=value``; the mode of the first is empty.

    Raises:
        ValueError: a part of a sentence.
    """
    head, equals, value = text.partition("=")
    mode, comma, setting = head.rpartition(",")
    if not equals or not setting or not value or (comma and not mode):
        raise ValueError(f"'{text}' is not of the form setting=value or mode,setting=value")
    return (_mode(mode).value if comma else ""), setting, value


def read_trace_level(text: str) -> TraceLevel:
    """Read a level: OFF, TIMESTAMPS or TENSORS in any case, or one of tritonserver's older words."""
    try:
        return _LEVEL_WORDS[text.lower()]
    except KeyError:
        raise ValueError(f"'{text}' is not one of OFF, TIMESTAMPS, TENSORS") from None


def trace_options(
    config: Iterable[tuple[str, str, str]],
    *,
    levels: Iterable[TraceLevel] = (),
    deprecated: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> TraceOptions:
    """Return the options of all --trace-config flags over the deprecated trace-* flags (``deprecated`` and ``levels``).

    ``environment`` may have OpenTelemetry's OTEL_BSP_* variables, which the flags go over.

    Raises:
        ValueError: a sentence.
    """
    options = replace(
        TraceOptions(), **{name: value for name, value in (deprecated or {}).items() if value is not None}
    )
    chosen = list(levels)
    telemetry = _from_environment(environment or {})
    for mode, setting, value in config:
        try:
            if mode == TraceMode.OPENTELEMETRY:
                telemetry = _telemetry(telemetry, setting, value)
            elif setting == "level" and not mode:
                chosen.append(read_trace_level(value))
            else:
                options = _option(options, mode, setting, value)
        except ValueError as error:
            name = f"{mode},{setting}" if mode else setting
            raise ValueError(f"--trace-config {name}: {error}") from None
    if telemetry.max_export_batch_size > telemetry.max_queue_size:
        raise ValueError("--trace-config opentelemetry: bsp_max_export_batch_size is larger than bsp_max_queue_size")
    level = TraceLevel.OFF
    if all(chosen):  # OFF among them switches tracing off
        for item in chosen:
            level |= item
    return replace(options, level=level, opentelemetry=telemetry)


def _option(options: TraceOptions, mode: str, setting: str, value: str) -> TraceOptions:
    if not mode and setting == "mode":
        return replace(options, mode=_mode(value))
    if not mode and setting == "rate":
        return replace(options, rate=_whole(value, 0))
    if not mode and setting == "count":
        return replace(options, count=_whole(value, -1))
    if mode == TraceMode.TRITON and setting == "file":
        return replace(options, file=value)
    if mode == TraceMode.TRITON and setting == "log-frequency":
        return replace(options, log_frequency=_whole(value, 0))
    raise ValueError("there is no such setting")


def _telemetry(options: OpenTelemetryOptions, setting: str, value: str) -> OpenTelemetryOptions:
    options = replace(options, given=(*options.given, (setting, value)))
    if setting == "url":
        return replace(options, url=value)
    if setting == "resource":
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise ValueError(f"'{value}' is not of the form key=value")
        return replace(options, resource=(*options.resource, (key, text)))
    if setting == "bsp_max_queue_size":
        return replace(options, max_queue_size=_whole(value, 1))
    if setting == "bsp_schedule_delay":
        return replace(options, schedule_delay_ms=_whole(value, 1))
    if setting == "bsp_max_export_batch_size":
        return replace(options, max_export_batch_size=_whole(value, 1))
    raise ValueError("there is no such setting")


def _from_environment(environment: Mapping[str, str]) -> OpenTelemetryOptions:
    options = OpenTelemetryOptions()
    for name in ("bsp_max_queue_size", "bsp_schedule_delay", "bsp_max_export_batch_size"):
        variable = f"OTEL_{name.upper()}"
        if variable in environment:
            try:
                options = _telemetry(options, name, environment[variable])
            except ValueError as error:
                raise ValueError(f"{variable}: {error}") from None
    return replace(options, given=())


def _mode(text: str) -> TraceMode:
    try:
        return TraceMode(text.lower())
    except ValueError:
        raise ValueError(f"'{text}' is not one of triton, opentelemetry") from None


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None
    if not least <= number <= 2**31 - 1:
        raise ValueError(f"{text} is not between {least} and {2**31 - 1}")
    return number
