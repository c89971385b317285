"""API keys: from where one works, how long it may last, when its end is told. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

from registry.domain.texts import gettext as _

SCOPES = ("read", "write", "admin")
MAX_NETWORKS = 20
# For so long the secret before a rotation may work beside the new one.
MAX_OVERLAP = timedelta(days=7)
# The end of a key is told so long before, or in the last quarter of a shorter life.
TELL_BEFORE = timedelta(days=7)
# Whoever makes a key for less than a day knows when it ends.
TOO_SHORT_TO_TELL = timedelta(days=1)


def network_problem(text: str) -> str:
    """Return why a text is no range of addresses, empty when it is one: ``10.1.0.0/16``, ``2001:db8::/32``."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        try:
            meant = ipaddress.ip_network(text, strict=False)
        except ValueError:
            return _("“%(text)s” is no address and no range like 10.1.0.0/16.") % {"text": text[:60]}
        return _("“%(text)s” has bits behind its prefix; the range is %(meant)s.") % {"text": text, "meant": meant}
    return ""


def is_allowed(ip: str | None, networks: Sequence[str]) -> bool:
    """Say whether a caller from ``ip`` may use a key of these networks; with none of them everybody may.

    Without an address (a UNIX socket) nobody may use a key that has networks.
    """
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(ip or "")
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(network) for network in networks)


def expiry_problem(expires_at: datetime | None, *, now: datetime, max_days: int) -> str:
    """Return why a key must not end then, empty when it may. ``max_days`` 0: a key may last for ever."""
    if expires_at is None:
        if max_days:
            return _("Keys must end here, after %(days)d days at the latest.") % {"days": max_days}
        return ""
    if expires_at <= now:
        return _("The expiry lies in the past.")
    # A minute for the way from the form to here.
    if max_days and expires_at > now + timedelta(days=max_days, minutes=1):
        return _("A key may last %(days)d days here at most.") % {"days": max_days}
    return ""


def is_end_near(created_at: datetime, expires_at: datetime, now: datetime) -> bool:
    """Say whether it is time to tell that a key ends."""
    life = expires_at - created_at
    if life < TOO_SHORT_TO_TELL or now >= expires_at:
        return False
    return now >= expires_at - min(TELL_BEFORE, life / 4)
