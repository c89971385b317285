"""Which metrics a node has: tritonserver's --metrics-config. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

_SWITCHES = ("counter_latencies", "histogram_latencies", "summary_latencies")


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """``quantiles`` are (quantile, allowed error of its rank), as Prometheus' clients take them."""

    counter_latencies: bool = True
    histogram_latencies: bool = False
    summary_latencies: bool = False
    quantiles: tuple[tuple[float, float], ...] = (
        (0.5, 0.05),
        (0.9, 0.01),
        (0.95, 0.001),
        (0.99, 0.001),
        (0.999, 0.001),
    )


def read_metrics_setting(text: str) -> tuple[str, str]:
    """Read ``setting=value``. Raises ValueError with a part of a sentence."""
    setting, equals, value = text.partition("=")
    if not setting or not equals or not value or "," in setting:
        raise ValueError(f"'{text}' is not of the form setting=value")
    return setting, value


def metrics_config(settings: Iterable[tuple[str, str]]) -> MetricsConfig:
    """Return what the flags say together. Raises ValueError with a sentence."""
    config = MetricsConfig()
    for setting, value in settings:
        if setting in _SWITCHES:
            if value not in ("true", "false"):
                raise ValueError(f"--metrics-config {setting}: '{value}' is neither true nor false")
            changes: dict[str, Any] = {setting: value == "true"}
            config = replace(config, **changes)
        elif setting == "summary_quantiles":
            config = replace(config, quantiles=tuple(_quantile(pair) for pair in value.split(",")))
        else:
            known = ", ".join((*_SWITCHES, "summary_quantiles"))
            raise ValueError(f"--metrics-config: there is no setting '{setting}', only {known}")
    return config


def _quantile(text: str) -> tuple[float, float]:
    quantile, colon, error = text.partition(":")
    try:
        pair = (float(quantile), float(error))
    except ValueError:
        pair = (-1.0, -1.0)
    if not colon or not 0 <= pair[0] <= 1 or not 0 <= pair[1] <= 1:
        raise ValueError(f"--metrics-config summary_quantiles: '{text}' is not of the form quantile:error")
    return pair
