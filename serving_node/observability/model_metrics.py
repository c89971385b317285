"""Metric families that models make for themselves, shared by all that use the same name.

Source: Triton's custom metrics. A family and its series live as long as somebody holds them.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, runtime_checkable

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.observability.buckets import BucketHistogram
from serving_node.observability.families import Family, Labels, MetricKind

_NAME = re.compile(r"(?!__)[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
# families of the node itself: the same name twice would make the whole page unreadable
_RESERVED = ("nv_", "flotilla_")
_MOST_SERIES = 10_000
_MOST_CHARACTERS = 4096


@dataclass(slots=True)
class _Series:
    value: float = 0.0
    histogram: BucketHistogram | None = None
    holders: int = 0


@dataclass(slots=True)
class _Family:
    help: str
    kind: MetricKind
    holders: int = 0
    series: dict[Labels, _Series] = field(default_factory=dict)


@runtime_checkable
class MeasuringBackend(Protocol):
    """A backend whose models make metrics of their own."""

    def metric_families(self) -> list[Family]:
        """Return them as they are now. Safe on any thread."""


class FamilyHolder:
    """One model's hold on a family, and on the series that it asked for."""

    def __init__(self, metrics: ModelMetrics, name: str) -> None:
        self._metrics = metrics
        self._name = name
        self._labels: set[Labels] = set()

    def hold(self, labels: Labels, bounds: Sequence[float] | None) -> None:
        """Make a series, or share the one that is there, whose buckets stay as they are. Raises InferenceError."""
        if labels not in self._labels:
            self._metrics.hold(self._name, labels, bounds)
            self._labels.add(labels)

    def change(self, labels: Labels, verb: str, value: float) -> None:
        """Change a series that is held: ``increment``, ``set`` or ``observe``. What its kind cannot do is refused.

        Raises:
            InferenceError: UNSUPPORTED, INVALID_ARG; with Triton's text.
        """
        self._metrics.change(self._name, labels, verb, value)

    def value(self, labels: Labels) -> float:
        """Return the value of a series that is held. Raises InferenceError UNSUPPORTED for histograms."""
        return self._metrics.value(self._name, labels)

    def release(self) -> None:
        """Let go of the family and its series, once."""
        self._metrics.release(self._name, self._labels)


class ModelMetrics:
    """All families of all models of a node. Safe on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}

    def open(self, name: str, description: str, kind: MetricKind) -> FamilyHolder:
        """Return a hold on a family, which is made when it is not there; its first description stays.

        Raises:
            InferenceError: INVALID_ARG, the name cannot be used, or not with this kind.
        """
        if not _NAME.fullmatch(name) or max(len(name), len(description)) > _MOST_CHARACTERS:
            raise InferenceError(ErrorCode.INVALID_ARG, "Invalid metric name")
        if name.startswith(_RESERVED):
            raise InferenceError(ErrorCode.INVALID_ARG, f"the name of metric '{name}' is reserved for the node's own")
        with self._lock:
            family = self._families.get(name) or _Family(description, kind)
            if family.kind is not kind:
                raise InferenceError(ErrorCode.INVALID_ARG, "Family name already exists with different type")
            self._families[name] = family
            family.holders += 1
        return FamilyHolder(self, name)

    def hold(self, name: str, labels: Labels, bounds: Sequence[float] | None) -> None:
        """Make a series of a family that is held, or count one more holder of it. Raises InferenceError."""
        with self._lock:
            family = self._families[name]
            _check_labels(labels, family.kind)
            series = family.series.get(labels)
            if series is None:
                if len(family.series) >= _MOST_SERIES:
                    sentence = f"metric '{name}' has {_MOST_SERIES} series, and may not have more"
                    raise InferenceError(ErrorCode.INVALID_ARG, sentence)
                series = _Series(histogram=_histogram(bounds) if family.kind is MetricKind.HISTOGRAM else None)
                family.series[labels] = series
            series.holders += 1

    def change(self, name: str, labels: Labels, verb: str, value: float) -> None:
        """See ``FamilyHolder.change``."""
        with self._lock:
            family = self._families[name]
            series = family.series[labels]
            kind = family.kind
            if verb == "observe" and series.histogram is not None:
                series.histogram.observe(value)
            elif verb == "set" and kind is MetricKind.GAUGE:
                series.value = value
            elif verb == "increment" and kind is not MetricKind.HISTOGRAM:
                if kind is MetricKind.COUNTER and value < 0:
                    raise InferenceError(
                        ErrorCode.INVALID_ARG,
                        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative"
                        " values.",
                    )
                series.value += value
            else:
                raise _unsupported(kind, verb)

    def value(self, name: str, labels: Labels) -> float:
        """See ``FamilyHolder.value``."""
        with self._lock:
            family = self._families[name]
            if family.kind is MetricKind.HISTOGRAM:
                raise _unsupported(family.kind, "value")
            return family.series[labels].value

    def release(self, name: str, labels: set[Labels]) -> None:
        """One holder of a family less, and one of each of these series; what nobody holds is gone."""
        with self._lock:
            family = self._families[name]
            for one in labels:
                series = family.series[one]
                series.holders -= 1
                if not series.holders:
                    del family.series[one]
            family.holders -= 1
            if not family.holders:
                del self._families[name]

    def families(self) -> list[Family]:
        """Return what the metrics page shows."""
        with self._lock:
            shown: list[Family] = []
            for name, family in self._families.items():
                one = Family(name, family.help, family.kind)
                for labels, series in family.series.items():
                    one.add(labels, series.value if series.histogram is None else series.histogram.snapshot())
                shown.append(one)
            return shown


def _histogram(bounds: Sequence[float] | None) -> BucketHistogram:
    finite = [bound for bound in bounds or () if bound != math.inf]  # the last bucket is there anyway
    if any(not lower < upper for lower, upper in pairwise(finite)) or any(map(math.isnan, finite)):
        raise InferenceError(ErrorCode.INVALID_ARG, "Bucket Boundaries must be strictly sorted")
    return BucketHistogram(finite)


def _check_labels(labels: Labels, kind: MetricKind) -> None:
    for name, value in labels:
        is_bound = name == "le" and kind is MetricKind.HISTOGRAM
        if not _LABEL.fullmatch(name) or is_bound or max(len(name), len(value)) > _MOST_CHARACTERS:
            raise InferenceError(ErrorCode.INVALID_ARG, "Invalid label name")


def _unsupported(kind: MetricKind, verb: str) -> InferenceError:
    sentence = f"TRITONSERVER_METRIC_KIND_{kind.value.upper()} does not support {verb.capitalize()}"
    return InferenceError(ErrorCode.UNSUPPORTED, sentence)
