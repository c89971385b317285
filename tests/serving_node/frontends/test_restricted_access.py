"""Restrictions: what the flags mean, and who is let in."""

from __future__ import annotations

import pytest

from serving_node.frontends.restricted_access import ApiCategory, RestrictedAccess, parse_group


def test_nothing_is_restricted_without_groups() -> None:
    access = RestrictedAccess()
    assert not access
    assert all(access.check(category, {}) is None for category in ApiCategory)


def test_http() -> None:
    access = RestrictedAccess.for_http([parse_group("health,metadata:Admin-Key=se=cr:et"), parse_group("trace:t=1")])
    assert access
    refused = "This API is restricted, expecting header 'Admin-Key'"
    assert access.check(ApiCategory.HEALTH, {}) == refused
    assert access.check(ApiCategory.METADATA, {b"admin-key": b"secret"}) == refused
    assert access.check(ApiCategory.METADATA, {b"admin-key": b"se=cr:et2"}) == refused
    assert access.check(ApiCategory.HEALTH, {b"admin-key": b"se=cr:et"}) is None
    assert access.check(ApiCategory.INFERENCE, {}) is None
    assert access.check(ApiCategory.TRACE, {b"admin-key": b"1"}) == "This API is restricted, expecting header 't'"
    assert access.is_restricted(ApiCategory.TRACE)
    assert access.header_of(ApiCategory.TRACE) == "t"
    assert not access.is_restricted(ApiCategory.LOGGING)


def test_grpc_keys_have_a_prefix() -> None:
    access = RestrictedAccess.for_grpc([parse_group("inference:infer-key=v")])
    sentence = "This protocol is restricted, expecting header 'triton-grpc-protocol-infer-key'"
    assert access.check(ApiCategory.INFERENCE, {b"infer-key": b"v"}) == sentence
    assert access.check(ApiCategory.INFERENCE, {b"triton-grpc-protocol-infer-key": b"v"}) is None


def test_values_of_clients_need_not_be_text() -> None:
    access = RestrictedAccess.for_http([parse_group("health:k=v")])
    assert access.check(ApiCategory.HEALTH, {b"k": b"\xff\xfe"}) is not None


@pytest.mark.parametrize("text", ["", "health", "health:", "health:k", "health:k=", "health:=v", ":k=v", "health=k:v"])
def test_malformed(text: str) -> None:
    with pytest.raises(ValueError, match="option format is '<config name>:<setting>=<value>'"):
        parse_group(text)


def test_refusals_do_not_repeat_the_value() -> None:
    with pytest.raises(ValueError, match="ASCII") as caught:
        parse_group("health:k=sécret")
    assert "cret" not in str(caught.value)
    assert "hidden" not in repr(parse_group("health:k=hidden"))


def test_unknown_and_doubled_parts() -> None:
    with pytest.raises(ValueError, match="unknown restricted api 'some'"):
        RestrictedAccess.for_http([parse_group("health,some:k=v")])
    with pytest.raises(ValueError, match="unknown restricted protocol ''"):
        RestrictedAccess.for_grpc([parse_group("health,:k=v")])
    twice = [parse_group("health:k=v"), parse_group("trace,health:k=v")]
    with pytest.raises(ValueError, match="restricted api 'health' can not be specified in multiple config groups"):
        RestrictedAccess.for_http(twice)
