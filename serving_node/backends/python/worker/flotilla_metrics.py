"""Metrics of a model's own on the metrics page of the server. Needs the standard library only."""

from __future__ import annotations

import enum
import itertools
import weakref
from typing import Any

from flotilla_tensor import TritonModelException  # type: ignore[import-not-found]

_DELETED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should be"
    " deleted AFTER its corresponding 'Metric' objects have been deleted."
)
_numbers = itertools.count(1)

# What asks the server: metric(verb, number, details) and metric_dropped(number). Installed by the process that runs
# the model, as it does with triton_python_backend_utils.
_server: Any = None


class MetricKind(enum.IntEnum):
    """Kinds of families, by Triton's numbers."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2

    def __str__(self) -> str:
        return f"MetricKind.{self.name}"


class Metric:
    """One series of a family; of no use any more once the family is forgotten."""

    __slots__ = ("_family", "_kind", "_number")

    def __init__(self, family: MetricFamily, number: int) -> None:
        self._family = weakref.ref(family)
        self._kind = family._kind
        self._number = number

    def increment(self, value: float) -> None:
        """Add to a counter or gauge."""
        is_falling = self._kind == MetricKind.COUNTER and _number("increment", value) < 0
        self._change("increment", value, self._kind != MetricKind.HISTOGRAM and not is_falling)

    def set(self, value: float) -> None:
        """Set a gauge."""
        self._change("set", value, self._kind == MetricKind.GAUGE)

    def observe(self, value: float) -> None:
        """Count a value in a histogram."""
        self._change("observe", value, self._kind == MetricKind.HISTOGRAM)

    def value(self) -> float:
        """Return the value of a counter or gauge."""
        family = self._held("Failed to get metric value")
        value = _reach().metric("value", self._number, [], "Failed to get metric value")
        del family
        return float(value)

    def _change(self, verb: str, value: float, is_possible: bool) -> None:
        """Tell the server; wait for it only to hear why something is not possible."""
        details = [repr(_number(verb, value))]
        failure = f"Failed to {verb} metric value"
        family = self._held(failure)
        if is_possible:
            _reach().metric_changed(verb, self._number, details)
        else:
            _reach().metric(verb, self._number, details, failure)
        del family

    def _held(self, failure: str) -> MetricFamily:
        """Return the family, which the caller keeps until the server has been told. Raises TritonModelException."""
        family = self._family()
        if family is None:
            raise TritonModelException(f"{failure}: {_DELETED}")
        return family


class MetricFamily:
    """Series of one name. It and its series are on the metrics page until nothing holds it any more."""

    __slots__ = ("__weakref__", "_kind", "_number", "_series")

    COUNTER = MetricKind.COUNTER
    GAUGE = MetricKind.GAUGE
    HISTOGRAM = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        self._number = 0
        if not all(isinstance(text, str) for text in (name, description)) or not isinstance(kind, MetricKind):
            raise TypeError("MetricFamily: name and description must be str, kind one of its COUNTER, GAUGE, HISTOGRAM")
        self._kind = kind
        # numbers of series that were asked for before, also by models that ask for each request
        self._series: dict[Any, int] = {}
        number = next(_numbers)
        _reach().metric("family", number, [name, description, int(kind)], "Error when creating MetricFamily")
        self._number = number

    def __del__(self) -> None:
        if self._number and _server is not None:
            _server.metric_dropped(self._number)

    def Metric(self, labels: Any = None, buckets: Any = None) -> Metric:
        """Return the series of these labels; ``buckets`` are the upper bounds of a histogram's."""
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        is_histogram = self._kind == MetricKind.HISTOGRAM
        if buckets is None:
            if is_histogram:
                raise TritonModelException("Failed to create metric. Missing required buckets.")
        elif not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        elif not is_histogram:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        bounds = None if buckets is None else [repr(_number("Metric", bound)) for bound in buckets]
        texts = {str(name): str(value) for name, value in (labels or {}).items()}
        key = (tuple(sorted(texts.items())), None if bounds is None else tuple(bounds))
        number = self._series.get(key, 0)
        if not number:
            number = next(_numbers)
            _reach().metric("series", number, [self._number, texts, bounds], "Error when creating Metric")
            self._series[key] = number
        return Metric(self, number)


def _number(where: str, value: Any) -> float:
    if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
        raise TypeError(f"{where}: a number is needed, not {type(value).__name__}")
    return float(value)


def _reach() -> Any:
    if _server is None:
        raise TritonModelException("Metrics are out of reach here.")
    return _server
