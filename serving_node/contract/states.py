"""States that a node reports about the models it holds."""

from __future__ import annotations

from enum import StrEnum


class UnitState(StrEnum):
    """State of one loaded unit (model name, version, config digest) on one node.

    Order of a successful start: absent, fetching, verifying, staged, loading, warming, ready.
    """

    ABSENT = "absent"
    FETCHING = "fetching"
    VERIFYING = "verifying"
    STAGED = "staged"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"


class ModelState(StrEnum):
    """State of a model version in Triton's repository index. Source: Triton ``ModelReadyState``."""

    UNKNOWN = "UNKNOWN"
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


class RouteRole(StrEnum):
    """What part a unit plays in a deployment."""

    LIVE = "live"
    CANARY = "canary"
    SHADOW = "shadow"
    HELD = "held"
