from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain import api_keys as domain

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ip", "networks", "may"),
    [
        ("10.1.2.3", [], True),
        (None, [], True),
        ("10.1.2.3", ["10.1.0.0/16"], True),
        ("10.2.2.3", ["10.1.0.0/16"], False),
        ("10.2.2.3", ["10.1.0.0/16", "10.2.2.3"], True),
        ("2001:db8::7", ["2001:db8::/32"], True),
        ("2001:db8::7", ["10.0.0.0/8"], False),
        # An address that carries another one is not that one.
        ("2002:a01:203::1", ["10.0.0.0/8"], False),
        (None, ["10.0.0.0/8"], False),
        ("rubbish", ["10.0.0.0/8"], False),
    ],
)
def test_from_where_a_key_may_be_used(ip: str | None, networks: list[str], may: bool) -> None:
    assert domain.is_allowed(ip, networks) is may


@given(st.ip_addresses(), st.integers(0, 32))
def test_a_network_holds_its_own_addresses(address: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> None:
    network = str(ipaddress.ip_network(f"{address}/{bits}", strict=False))
    assert domain.network_problem(network) == ""
    assert domain.is_allowed(str(address), [network])


def test_bits_behind_the_prefix_are_refused_with_the_range_that_was_meant() -> None:
    assert "10.0.0.0/8" in domain.network_problem("10.1.2.3/8")
    for text in ("", "everywhere", "10.1.2", "10.0.0.0/33", "10.0.0.0/8/9", "fe80::1%eth0/64"):
        assert domain.network_problem(text), text


def test_where_keys_must_end_they_end_in_time() -> None:
    def problem(days: float | None, max_days: int) -> str:
        ends = None if days is None else NOW + timedelta(days=days)
        return domain.expiry_problem(ends, now=NOW, max_days=max_days)

    assert problem(None, 0) == problem(10_000, 0) == problem(30, 30) == problem(1, 30) == ""
    assert "30 days" in problem(None, 30) and "30 days" in problem(31, 30)
    assert "past" in problem(0, 0) and "past" in problem(-1, 30)


@given(st.integers(1, 2000), st.floats(0, 1.2))
def test_an_end_is_told_late_in_a_life_and_before_its_end(days: int, part: float) -> None:
    life = timedelta(days=days)
    now = NOW + life * part
    told = domain.is_end_near(NOW, NOW + life, now)
    left = NOW + life - now
    assert told == (timedelta() < left <= min(timedelta(days=7), life / 4))


def test_nobody_is_told_of_the_end_of_a_short_life() -> None:
    assert not domain.is_end_near(NOW, NOW + timedelta(hours=20), NOW + timedelta(hours=19))
