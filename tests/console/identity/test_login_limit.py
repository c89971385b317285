"""Guessing passwords at the sign-in pages."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from redis.exceptions import ConnectionError as Gone

from console.identity.login_limit import TRIES_PER_ADDRESS, TRIES_PER_NAME
from console.middleware.client_ip import counted_address
from tests.console.conftest import PASSWORD, Cast

LOGIN = "/login/"


@pytest.fixture
def address(cast: Cast) -> str:
    """An address that nobody has tried from."""
    return f"fd00:{uuid.uuid4().hex[:4]}:{uuid.uuid4().hex[:4]}::1"


def attempt(address: str, username: str, password: str) -> Any:
    return Client(REMOTE_ADDR=address).post(LOGIN, {"login": username, "password": password})


def test_a_password_is_not_guessed_for_ever(address: str) -> None:
    for _ in range(TRIES_PER_NAME):
        assert attempt(address, "alice", "wrong").status_code == 200
    refused = attempt(address, "Alice ", PASSWORD)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 0
    assert re.search("Too many failed attempts to sign in", refused.content.decode())
    assert refused.headers["Content-Security-Policy"]


def test_the_emergency_admin_has_no_sign_in_of_its_own(cast: Cast) -> None:
    for answer in (Client().get("/admin/login/"), Client().post("/admin/login/", {"username": "alice"})):
        assert answer.status_code == 302
        assert answer["Location"].startswith("/login/?next=%2Fadmin%2F")


def test_others_still_sign_in(address: str) -> None:
    for _ in range(TRIES_PER_NAME + 1):
        attempt(address, "alice", "wrong")
    assert attempt(address, "bob", PASSWORD).status_code == 302
    assert attempt(address.replace("fd00", "fd01"), "alice", PASSWORD).status_code == 302


def test_addresses_of_one_network_count_as_one(address: str) -> None:
    for number in range(TRIES_PER_NAME):
        assert attempt(f"{address}{number}", "alice", "wrong").status_code == 200
    assert attempt(address, "alice", PASSWORD).status_code == 429


def test_somebody_who_is_signed_in_resets_nobody_elses_count(address: str) -> None:
    vera = Client(REMOTE_ADDR=address)
    assert vera.post(LOGIN, {"login": "vera", "password": PASSWORD}).status_code == 302
    for _ in range(TRIES_PER_NAME):
        assert attempt(address, "alice", "wrong").status_code == 200
    assert vera.post(LOGIN, {"login": "alice", "password": "wrong"}).status_code == 302
    assert attempt(address, "alice", "wrong").status_code == 429


def test_signing_in_starts_the_count_again(address: str) -> None:
    for _ in range(3):
        for _ in range(TRIES_PER_NAME - 1):
            attempt(address, "alice", "wrong")
        assert attempt(address, "alice", PASSWORD).status_code == 302


def test_one_address_does_not_try_many_names(address: str) -> None:
    cache.set(f"login:address:{counted_address(address)}", TRIES_PER_ADDRESS - 1, 60)
    assert attempt(address, "bob", PASSWORD).status_code == 302
    assert attempt(address, "bob", "wrong").status_code == 200
    assert attempt(address, "bob", PASSWORD).status_code == 429
    assert Client(REMOTE_ADDR=address).get(LOGIN).status_code == 200


def test_without_the_cache_people_still_sign_in(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_args: Any, **_named: Any) -> None:
        raise Gone("no route")

    monkeypatch.setattr(cache, "count", gone)
    monkeypatch.setattr(cache, "delete", gone)
    assert attempt(address, "alice", PASSWORD).status_code == 302
