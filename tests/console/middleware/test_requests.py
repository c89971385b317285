from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from prometheus_client import REGISTRY

from registry.services import tokens
from tests.console.conftest import Cast


def test_request_id_is_made_or_taken_over_when_harmless(client: Client) -> None:
    made = client.get("/livez").headers["X-Request-ID"]
    assert len(made) == 16
    assert client.get("/livez", headers={"X-Request-ID": "build-1234"}).headers["X-Request-ID"] == "build-1234"
    for bad in ("short", "x" * 65, 'with"quote-and-more', "with space in it"):
        assert client.get("/livez", headers={"X-Request-ID": bad}).headers["X-Request-ID"] != bad


def test_requests_are_counted_by_route_and_not_by_path(client: Client) -> None:
    def count(route: str) -> float:
        labels = {"method": "GET", "route": route, "status": "404"}
        return REGISTRY.get_sample_value("flotilla_http_requests_total", labels) or 0.0

    route = r"api/v1/[\s\S]+"
    before = count(route)
    client.get("/api/v1/one/")
    client.get("/api/v1/two/")
    assert count(route) == before + 2


@pytest.mark.django_db
def test_metrics_answer_this_machine_only(client: Client, settings: Any) -> None:
    assert b"flotilla_http_requests_total" in client.get("/metrics").content
    assert client.get("/metrics", REMOTE_ADDR="203.0.113.9").status_code == 404
    assert client.get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 404
    settings.TRUSTED_PROXIES = ["127.0.0.1"]
    assert client.get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 404


def test_metrics_answer_keys_of_the_site_from_where_these_may_be_used(client: Client, cast: Cast) -> None:
    _row, text = tokens.token_create(
        owner=cast.alice, name="scrape", scopes=["read"], allowed_networks=["203.0.113.0/28"], actor=cast.actor("alice")
    )
    key = {"Authorization": f"Bearer {text}"}
    assert client.get("/metrics", headers=key, REMOTE_ADDR="203.0.113.9").status_code == 200
    assert client.get("/metrics", headers=key, REMOTE_ADDR="203.0.113.90").status_code == 404


@pytest.mark.django_db
def test_ready_asks_database_and_broker(client: Client, settings: Any) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "checks": {"database": "ok", "broker": "ok"}})
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["broker"]) == (503, "unreachable")
