"""When a connection is pinged, how often the client may ping, and how old a connection may become. Pure: time is given.

Source: gRPC's keepalive.md and gRPC core (chttp2: keepalive timers, ping_abuse_policy.cc, ping_rate_policy.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

# What a client may ping while it has no calls, unless that is permitted: once in this time.
_IDLE_PING_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class KeepAlivePolicy:
    """What the node does to keep connections alive, and what it bears from clients. Units: seconds.

    ``max_strikes`` 0 means no limit, ``max_age_seconds`` 0 and ``max_age_grace_seconds`` 0 mean for ever. The defaults
    are Triton's.
    """

    ping_seconds: float = 7200.0
    timeout_seconds: float = 20.0
    permit_without_calls: bool = False
    min_ping_interval_seconds: float = 300.0
    max_strikes: int = 2
    max_age_seconds: float = 0.0
    max_age_grace_seconds: float = 0.0


class KeepAliveStep(Enum):
    """What is due."""

    NOTHING = "nothing"
    PING = "ping"
    CLOSE = "close"


class KeepAlive:
    """The keep-alive state of one connection. ``now`` is in seconds of any steady clock."""

    __slots__ = ("_heard_at", "_last_ping_from_client", "_ping_sent_at", "_policy", "_strikes")

    def __init__(self, policy: KeepAlivePolicy, now: float) -> None:
        self._policy = policy
        self._heard_at = now
        self._ping_sent_at: float | None = None
        self._last_ping_from_client: float | None = None
        self._strikes = 0

    def heard(self, now: float) -> None:
        """Note that the client has sent something."""
        self._heard_at = now
        self._ping_sent_at = None

    def sent_data(self) -> None:
        """Note that headers or data went to the client: the count of its pings begins anew."""
        self._last_ping_from_client = None
        self._strikes = 0

    def due(self, now: float, *, has_calls: bool) -> KeepAliveStep:
        """Return what is to be done now. PING counts as sent."""
        policy = self._policy
        if self._ping_sent_at is not None:
            late = now - self._ping_sent_at >= policy.timeout_seconds
            return KeepAliveStep.CLOSE if late else KeepAliveStep.NOTHING
        if now - self._heard_at < policy.ping_seconds or not (has_calls or policy.permit_without_calls):
            return KeepAliveStep.NOTHING
        self._ping_sent_at = now
        return KeepAliveStep.PING

    def is_abusive(self, now: float, *, has_calls: bool) -> bool:
        """Note a PING from the client. Return whether it has pinged too often, which ends the connection."""
        policy = self._policy
        interval = policy.min_ping_interval_seconds
        if not has_calls and not policy.permit_without_calls:
            interval = _IDLE_PING_SECONDS
        last, self._last_ping_from_client = self._last_ping_from_client, now
        if last is None or now - last >= interval:
            return False
        self._strikes += 1
        return policy.max_strikes > 0 and self._strikes > policy.max_strikes
