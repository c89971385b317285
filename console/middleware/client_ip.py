"""Which address a request really came from. Pure: the trusted proxies are an argument."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from registry.domain.addresses import Network


def client_ip(peer: str | None, forwarded_for: str, trusted: Sequence[Network]) -> str | None:
    """Return the client's address, or None when the peer has none (a UNIX socket).

    ``X-Forwarded-For`` counts only when the peer is a trusted proxy, and is read from the right: the first hop that
    is not trusted is the client, because everything left of it may be forged.
    """
    address = _address(peer)
    if address is None:
        return None
    for hop in reversed([part.strip() for part in forwarded_for.split(",") if part.strip()]):
        if not _is_trusted(address, trusted):
            break
        previous = _address(hop)
        if previous is None:
            break
        address = previous
    return str(address)


def counted_address(address: str | None) -> str:
    """Return under what the tries of an address are counted: of IPv6 the /64, all of which one caller may have."""
    parsed = _address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((parsed, 64), strict=False).network_address)
    return str(parsed)


def is_loopback(address: str | None) -> bool:
    """Return whether the address is this machine's own."""
    parsed = _address(address)
    return parsed is not None and parsed.is_loopback


def _address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_trusted(address: ipaddress.IPv4Address | ipaddress.IPv6Address, trusted: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in trusted)
