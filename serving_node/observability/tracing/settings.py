"""The trace settings of the server and of models, and how they change at run time. Pure.

Source: Triton's trace extension; the sentences of errors are its.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.observability.tracing.options import TraceLevel, TraceMode, TraceOptions

# Setting of the extension -> attribute, in the extension's order.
_ATTRIBUTES = {
    "trace_level": "level",
    "trace_rate": "rate",
    "trace_count": "count",
    "log_frequency": "log_frequency",
}
_MAX_UNSIGNED = 2**32 - 1
_MAX_COUNT = 2**31 - 1
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\Z")

# Changes by attribute; None goes back to what stands behind: the server's setting, or that of the start.
TraceChanges = dict[str, Any]


@dataclass(slots=True)
class TraceSetting:
    """One setting in force, and what it has counted. Replaced, never changed, when somebody sets something."""

    level: TraceLevel
    rate: int
    count: int
    log_frequency: int
    specified: frozenset[str] = frozenset()
    seen: int = 0
    created: int = 0
    released: bool = False
    # What follows belongs to the writer: rendered traces that wait for their file, and how many there were.
    collected: int = 0
    group: list[bytes] = field(default_factory=list)

    def sample(self, *, forced: bool) -> bool:
        """Count a request and tell whether it is traced. ``forced``: its caller traces it already."""
        if self.rate == 0 or not self.level or (self.count == 0 and not forced):
            return forced and bool(self.level)
        self.seen += 1
        if self.seen % self.rate or self.count == 0:
            return forced
        if self.count > 0:
            self.count -= 1
        self.created += 1
        return True


class TraceSettings:
    """The settings of the server and those of models, which go over them.

    Only what was set for a model is its own; the rest follows the server's.
    """

    def __init__(self, options: TraceOptions) -> None:
        self._options = options
        self._start = TraceSetting(options.level, options.rate, options.count, options.log_frequency)
        self._server = replace(self._start, group=[])
        self._models: dict[str, TraceSetting] = {}

    def of(self, model: str) -> TraceSetting:
        """Return the setting in force for a model; an empty name is the server's."""
        return self._models.get(model, self._server)

    @property
    def enabled(self) -> bool:
        """Tell whether any request may be traced."""
        return any(setting.level for setting in (self._server, *self._models.values()))

    def update(self, model: str, changes: TraceChanges) -> list[TraceSetting]:
        """Apply all changes, or none, and return the settings that are not in force any more.

        Raises:
            InferenceError: INVALID_ARG, traces could not be written with them.
        """
        before = (self._server, *self._models.values())
        server, models = self._server, dict(self._models)
        if model:
            changed = self._changed(server, models.get(model), changes)
            if changed.specified:
                self._check(changed)
                models[model] = changed
            else:
                models.pop(model, None)
        else:
            server = self._changed(self._start, self._server, changes)
            self._check(server)
            models = {name: self._changed(server, setting, {}) for name, setting in models.items()}
        self._server, self._models = server, models
        kept = {id(setting) for setting in (server, *models.values())}
        released = [setting for setting in before if id(setting) not in kept]
        for setting in released:
            setting.released = True
        return released

    def describe(self, model: str) -> dict[str, list[str]]:
        """Return every setting of a model, or of the server, as the trace extension lists them."""
        setting = self.of(model)
        described = {
            "trace_level": setting.level.names(),
            "trace_rate": [str(setting.rate)],
            "trace_count": [str(setting.count)],
        }
        if self._options.mode is TraceMode.TRITON:
            described["log_frequency"] = [str(setting.log_frequency)]
            described["trace_file"] = [self._options.file]
            described["trace_mode"] = [TraceMode.TRITON.value]
        else:
            described["trace_mode"] = [TraceMode.OPENTELEMETRY.value]
            described |= {name: [value] for name, value in self._options.opentelemetry.settings().items()}
        return described

    def _changed(self, behind: TraceSetting, current: TraceSetting | None, changes: TraceChanges) -> TraceSetting:
        specified = set(current.specified) if current else set()
        values: dict[str, Any] = {}
        for name in _ATTRIBUTES.values():
            if name in changes:
                (specified.discard if changes[name] is None else specified.add)(name)
            if name not in specified:
                values[name] = getattr(behind, name)
            else:
                values[name] = changes[name] if name in changes else getattr(current, name)
        return TraceSetting(**values, specified=frozenset(specified))

    def _check(self, setting: TraceSetting) -> None:
        if not setting.level:
            return
        reason = None
        if setting.rate == 0:
            reason = "sample rate must be non-zero"
        elif self._options.mode is TraceMode.TRITON and not self._options.file:
            reason = "trace file name is not given"
        elif setting.count == 0:
            reason = ""
        if reason is not None:
            raise InferenceError(ErrorCode.INVALID_ARG, f"Attempting to set invalid trace setting :{reason}")


def changes_from_json(document: Mapping[str, Any]) -> TraceChanges:
    """Return the changes that a JSON object asks for; null takes a setting back.

    Raises:
        InferenceError: UNSUPPORTED for what cannot change, INTERNAL for a wrong type, INVALID_ARG for a wrong value.
    """
    lists: dict[str, list[str]] = {}
    for name, value in document.items():
        if value is None or name not in _ATTRIBUTES:
            lists[name] = []
        elif name == "trace_level":
            if not isinstance(value, list):
                raise InferenceError(ErrorCode.INTERNAL, "attempt to access JSON non-array as array")
            lists[name] = value
        else:
            lists[name] = [value]
        if not all(isinstance(item, str) for item in lists[name]):
            raise InferenceError(ErrorCode.INTERNAL, "attempt to access JSON non-string as string")
    changes = changes_from_lists(lists, before_value="")
    if document.get("trace_level") == []:
        del changes["level"]  # neither a level nor null: nothing is asked for
    return changes


def changes_from_lists(settings: Mapping[str, list[str]], before_value: str = " ") -> TraceChanges:
    """Return the changes that lists of texts ask for; an empty list takes a setting back. Raises InferenceError.

    ``before_value`` stands before the value in one of the sentences, which is not quite the same over HTTP and gRPC.
    """
    for name, what in (("trace_file", "trace file location"), ("trace_mode", "trace mode")):
        if name in settings:
            sentence = f"{what} can not be updated through network protocol"
            raise InferenceError(ErrorCode.UNSUPPORTED, sentence)
    changes: TraceChanges = {}
    for name, values in settings.items():
        if name not in _ATTRIBUTES:
            raise InferenceError(ErrorCode.INVALID_ARG, f"unknown trace setting '{name}'")
        if not values:
            changes[_ATTRIBUTES[name]] = None
        elif name == "trace_level":
            changes["level"] = _level(values)
        elif len(values) > 1:
            raise InferenceError(ErrorCode.INVALID_ARG, f"expect only 1 value for '{name}'")
        else:
            changes[_ATTRIBUTES[name]] = _number(name, values[0], before_value)
    return changes


def _level(values: list[str]) -> TraceLevel:
    level = TraceLevel.OFF
    for value in values:
        if value not in TraceLevel.__members__:
            raise InferenceError(ErrorCode.INVALID_ARG, f"unknown trace level '{value}'")
        level |= TraceLevel[value]
    if "OFF" in values and len(values) > 1:
        raise InferenceError(ErrorCode.INVALID_ARG, "Expect only one trace level 'OFF' is specified")
    return level


def _number(name: str, text: str, before_value: str) -> int:
    least, most = (-1, _MAX_COUNT) if name == "trace_count" else (0, _MAX_UNSIGNED)
    if _WHOLE.match(text) is None:
        raise InferenceError(ErrorCode.INVALID_ARG, f"Unable to parse '{name}', got: {text}")
    number = int(text) if len(text) < 20 else _MAX_UNSIGNED + 1
    if name == "trace_count" and -(2**31) <= number < least:
        sentence = f"Unable to parse '{name}'. Expecting value >= {least}, got:{before_value}{text}"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if not least <= number <= most:
        sentence = f"Unable to parse '{name}', value is out of range [ {least}, {most} ], got: {text}"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    return number
