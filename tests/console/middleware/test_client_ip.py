from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.middleware.client_ip import client_ip, is_loopback
from registry.domain.addresses import parse_networks

PROXY = parse_networks(["10.0.0.0/8", "::1"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # a stranger may not speak for others
        ("10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "6.6.6.6, 198.51.100.1", "198.51.100.1"),  # what the client forged is on the left
        ("10.1.2.3", "198.51.100.1, 10.9.9.9", "198.51.100.1"),
        ("10.1.2.3", "rubbish", "10.1.2.3"),
        ("::1", "2001:db8::5", "2001:db8::5"),
        ("::ffff:10.1.2.3", "198.51.100.1", "198.51.100.1"),
        (None, "198.51.100.1", None),
    ],
)
def test_client_is_the_first_hop_that_is_not_a_trusted_proxy(
    peer: str | None, forwarded: str, expected: str | None
) -> None:
    assert client_ip(peer, forwarded, PROXY) == expected


@given(st.ip_addresses(), st.text(max_size=60))
def test_without_trusted_proxies_headers_never_count(peer: object, forwarded: str) -> None:
    found = client_ip(str(peer), forwarded, ())
    mapped = getattr(peer, "ipv4_mapped", None)
    assert found is not None
    assert ipaddress.ip_address(found) == (mapped or ipaddress.ip_address(str(peer)))


def test_loopback_is_recognised() -> None:
    assert [is_loopback(text) for text in ("127.0.0.1", "::1", "10.0.0.1", "", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]
