"""Which network addresses the control plane may call on somebody's behalf. Pure.

An address that a user chose must not lead into the operator's own network: not to the database, not to a cloud's
metadata service. What counts is the address after name resolution, not the name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from registry.domain.texts import gettext as _

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL = 2000

# IPv6 ranges in which an IPv4 address is the real destination, and the bits below it. RFC 6052, 8215, 3056.
_CARRIES_IPV4 = (
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
# Global by the registry, yet they lead to translators and relays of the local network, or to nobody.
_NOT_PUBLIC = (
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("::/96"),
    ipaddress.ip_network("fec0::/10"),
    ipaddress.ip_network("192.0.0.0/24"),
    ipaddress.ip_network("192.88.99.0/24"),
)


def parse_networks(words: Sequence[str]) -> tuple[Network, ...]:
    """Return addresses and CIDR ranges as networks. Raises ValueError with the word that is neither."""
    return tuple(ipaddress.ip_network(word, strict=False) for word in words)


def parse_address(text: str) -> Address | None:
    """Return the address that a text spells (IPv6 with or without brackets), None when it is a name."""
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def is_in(address: Address, networks: Sequence[Network]) -> bool:
    """Say whether the address, or the IPv4 address that it carries, lies in one of the networks."""
    real = _real(address)
    return any(one.version == network.version and one in network for network in networks for one in {address, real})


def is_public(address: Address) -> bool:
    """Say whether anybody on the internet could have this address."""
    real = _real(address)
    return real.is_global and not real.is_multicast and not is_in(address, _NOT_PUBLIC)


def url_problem(url: str, allowed: Sequence[Network]) -> str:
    """Return why ``url`` may not be called, as far as its text tells; empty when it may.

    ``allowed`` are networks of the operator's that may be called in spite of being private; only to them goes http.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return _("This is no address.")
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        return _("An address has at most %(limit)d characters, all of them visible ASCII.") % {"limit": MAX_URL}
    if parts.scheme not in ("https", "http") or not host:
        return _("An address begins with https:// and a host.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        return _("An address holds no user, no password and no fragment.")
    if parts.scheme == "http" and not allowed:
        return _("Only https: what is sent would be readable on its way.")
    address = parse_address(host)
    if address is not None and not is_public(address) and not is_in(address, allowed):
        return private_sentence(host)
    return ""


def private_sentence(host: str) -> str:
    """Return why a host may not be called."""
    return _("%(host)s has an address that is not public; only public addresses are called.") % {"host": host}


def _real(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    for network, shift in _CARRIES_IPV4:
        if address in network:
            return ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF)
    return address
