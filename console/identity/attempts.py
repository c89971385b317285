"""How often codes may be asked for and guessed: counted in the cache; while it is down, uncounted."""

from __future__ import annotations

import logging
from typing import Any

from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from console.middleware.client_ip import counted_address
from console.middleware.request_context import facts_of
from console.shared_cache import count
from registry.errors import PermissionDenied

log = logging.getLogger(__name__)

WINDOW_SECONDS = 300
# Wrong codes that one account may type in a window: of 25 thousand million codes a few wait at a time.
CODES_PER_ACCOUNT = 20


def attempts(name: str, window_seconds: int = WINDOW_SECONDS) -> int:
    """Count one more attempt under a name and return how many there are in this window; 0 while nothing counts."""
    try:
        return count(f"attempts:{name}", window_seconds)
    except (RedisError, OSError) as error:
        log.warning("attempts.cache_unreachable: %s", error)
        return 0


def count_code(account: object, sentence: str) -> None:
    """Count a code that an account typed.

    Raises:
        PermissionDenied: too many of them; ``sentence`` says so.
    """
    if attempts(f"code:{account}") > CODES_PER_ACCOUNT:
        raise PermissionDenied(sentence)


class AddressThrottle(BaseThrottle):
    """So many calls from one address in a window; more are answered 429."""

    name = ""
    calls = 0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Say whether this call is within the limit."""
        return attempts(f"{self.name}:{counted_address(facts_of(request._request).ip)}") <= self.calls

    def wait(self) -> float:
        """Return the seconds after which to try again at the latest."""
        return WINDOW_SECONDS


class AskThrottle(AddressThrottle):
    """Beginning sign-ins."""

    name = "login-ask"
    calls = 30


class ClaimThrottle(AddressThrottle):
    """Asking whether somebody has confirmed: each sign-in asks every two seconds, several behind one address."""

    name = "login-claim"
    calls = 1500


class ExchangeThrottle(AddressThrottle):
    """Exchanging tokens of CI jobs, of which many may come from behind one address."""

    name = "oidc-exchange"
    calls = 600
