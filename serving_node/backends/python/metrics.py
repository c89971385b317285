"""The metrics that the model of a worker makes, by the numbers that it gave them. It is not trusted."""

from __future__ import annotations

from typing import Any

from serving_node.backends.python.worker.flotilla_wire import WireError
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.observability.families import Labels, MetricKind
from serving_node.observability.model_metrics import FamilyHolder, ModelMetrics

# Source: TRITONSERVER_MetricKind, which models name by these numbers.
_KINDS = (MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM)
_MOST_HELD = 10_000


class WorkerMetrics:
    """What one worker holds of the node's metrics. All methods on one thread at a time."""

    def __init__(self, metrics: ModelMetrics) -> None:
        self._metrics = metrics
        self._families: dict[int, FamilyHolder] = {}
        self._series: dict[int, tuple[int, Labels]] = {}
        self._is_closed = False

    def do(self, verb: str, number: int, details: list[Any]) -> str | None:
        """Do what the model asks and return the value that it asks for, as text.

        Numbers are texts here, as JSON knows neither infinity nor not-a-number.

        Raises:
            InferenceError: why it cannot be done, with Triton's text.
            WireError: it makes no sense.
        """
        if self._is_closed:
            raise InferenceError(ErrorCode.UNAVAILABLE, "the model is being unloaded")
        try:
            if verb == "family":
                name, description, kind = details
                self._open(number, str(name), str(description), int(kind))
            elif verb == "series":
                family, labels, bounds = details
                self._hold(number, family, labels, bounds)
            elif verb == "value":
                family, known = self._series[number]
                return repr(self._families[family].value(known))
            elif verb in ("increment", "set", "observe"):
                family, known = self._series[number]
                (value,) = details
                self._families[family].change(known, verb, float(value))
            else:
                raise WireError("a deed on a metric that makes no sense")
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise WireError(f"a metric that makes no sense: {error}") from error
        return None

    def drop(self, number: Any) -> None:
        """The model has forgotten a family, and with it its series."""
        family = self._families.pop(number, None)
        if family is not None:
            family.release()
            self._series = {key: value for key, value in self._series.items() if value[0] != number}

    def close(self) -> None:
        """Let go of everything: the worker is gone, or told to go. Idempotent."""
        self._is_closed = True
        families, self._families, self._series = self._families, {}, {}
        for family in families.values():
            family.release()

    def _open(self, number: int, name: str, description: str, kind: int) -> None:
        self._check_new(number, self._families)
        self._families[number] = self._metrics.open(name, description, _KINDS[kind])

    def _hold(self, number: int, family: int, labels: dict[str, str], bounds: list[str] | None) -> None:
        self._check_new(number, self._series)
        known = tuple(sorted((str(name), str(value)) for name, value in dict(labels).items()))
        self._families[family].hold(known, None if bounds is None else [float(bound) for bound in bounds])
        self._series[number] = (family, known)

    @staticmethod
    def _check_new(number: int, known: dict[int, Any]) -> None:
        if type(number) is not int or number in known:
            raise WireError("a metric without a number of its own")
        if len(known) >= _MOST_HELD:
            raise InferenceError(ErrorCode.UNAVAILABLE, f"an instance may hold {_MOST_HELD} metrics, and not more")
