"""How many calls of the API a caller may make in a minute, by kind: counted in the cache, in whole minutes.

A caller is a token, a person's session or a node, and an address where there is none of these. While the cache is away
nothing is counted and everything goes on: a limit guards against haste, the permissions guard the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from console.identity.attempts import attempts
from console.middleware.client_ip import counted_address
from console.middleware.request_context import facts_of

MINUTE = 60


@dataclass(frozen=True, slots=True)
class Rate:
    """Where a caller stands: calls a minute, calls left, seconds until the next minute."""

    limit: int
    remaining: int
    reset_seconds: int
    is_over: bool

    def headers(self) -> dict[str, str]:
        """Return them for the answer."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_seconds),
        }

    def retry_headers(self) -> dict[str, str]:
        """Return them with when to come back, for a refusal."""
        return {**self.headers(), "Retry-After": str(self.reset_seconds)}


def count_call(kind: str, caller: object, now: float | None = None) -> Rate | None:
    """Count one call of a kind (``read``, ``write``, ``costly``, ``upload``); None where the site sets no limit."""
    limit: int = settings.API_RATES[kind]
    if limit <= 0:
        return None
    minute, passed = divmod(int(time() if now is None else now), MINUTE)
    count = attempts(f"rate:{kind}:{caller}:{minute}", 2 * MINUTE)
    return Rate(limit, max(0, limit - count), MINUTE - passed, count > limit)


class CallerThrottle(BaseThrottle):
    """Counts each call of an address of the API, by the view's ``rate`` or else by whether it reads or writes.

    The rate stays at the request as ``rate``, for the headers of the answer.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Say whether this call is within the limit."""
        kind = getattr(view, "rate", "") or ("read" if request.method in {"GET", "HEAD", "OPTIONS"} else "write")
        self._rate = count_call(kind, _caller(request))
        request._request.rate = self._rate  # type: ignore[attr-defined]
        return self._rate is None or not self._rate.is_over

    def wait(self) -> float | None:
        """Return the seconds until the next minute."""
        return self._rate.reset_seconds if self._rate else None


def _caller(request: Request) -> str:
    for one in (request.auth, request.user):
        if getattr(one, "pk", None):
            return f"{type(one).__name__}:{one.pk}"
    return f"address:{counted_address(facts_of(request._request).ip)}"
