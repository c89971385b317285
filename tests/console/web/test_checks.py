"""Checks on the page of a version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from registry.models import Check, Operation
from tests.console.conftest import Cast


def test_the_page_offers_it_and_does_it(cast: Cast, browse: Callable[..., Any]) -> None:
    version = cast.ready_version()
    page = "/p/wren/models/finch/versions/1/"
    bob = browse("bob")
    assert 'data-testid="recheck-start"' in bob.get(page).text
    act = f"/p/wren/models/finch/versions/{version.pk}/act/"
    answer = bob.post(act, {"act": "recheck", "kind": "latency"}, follow=True)
    assert "A worker makes the check again" in answer.text
    assert Operation.objects.get(kind="check_version").params == {"kinds": ["latency"]}
    assert browse("vera").post(act, {"act": "recheck", "kind": "latency"}).status_code == 403


def test_the_page_shows_a_latency_profile(cast: Cast, browse: Callable[..., Any]) -> None:
    version = cast.ready_version()
    cell = {"batch": 8, "requests": 10, "latency_p50_ms": 1.5, "latency_p99_ms": 2.5, "rows_per_second": 4000.0}
    Check.objects.create(version=version, kind="latency", verdict="pass", evidence={"cells": [cell]})
    text = browse("bob").get("/p/wren/models/finch/versions/1/").text
    assert 'data-testid="latency-table"' in text
    assert "2.5 ms" in text
