from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.addresses import is_in, is_public, parse_address, parse_networks

PRIVATE = [
    "127.0.0.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "192.0.0.8", "198.18.0.1", "::1", "::", "fe80::1", "fd00::1", "fec0::1", "ff02::1",
    "::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:a00:1::", "2002:7f00:1::1", "2001:0:53aa::",
    "::a00:1",
]  # fmt: skip


@pytest.mark.parametrize("text", PRIVATE)
def test_no_way_leads_inside(text: str) -> None:
    address = parse_address(text)
    assert address is not None and not is_public(address)


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_the_internet_is_public(text: str) -> None:
    address = parse_address(text)
    assert address is not None and is_public(address)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_however_ipv6_carries_it(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    carried = [(0xFFFF << 32) | number, (0x64FF9B << 96) | number, (0x2002 << 112) | (number << 80)]
    assert {is_public(ipaddress.IPv6Address(one)) for one in carried} == {is_public(address)}


def test_a_network_holds_the_carried_address_too() -> None:
    networks = parse_networks(["10.0.0.0/8", "fd00::/8"])
    for text in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::5"):
        address = parse_address(text)
        assert address is not None and is_in(address, networks)
    assert not is_in(ipaddress.ip_address("11.0.0.1"), networks)
    assert parse_address("example.com") is None
    assert parse_address("[::1]") == ipaddress.ip_address("::1")
