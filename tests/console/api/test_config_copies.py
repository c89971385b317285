"""Copying, going back and comparing configs through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.conftest import Cast

FINCH = "/api/v1/projects/wren/models/finch/configs/"


@pytest.fixture
def two(cast: Cast, api: Callable[..., Any]) -> Any:
    """A model with two configs, and somebody who may write them."""
    cast.ready_version("finch")
    bob = api("bob")
    body = {**bob.get(f"{FINCH}0/").json()["body"], "max_batch_size": 32}
    assert bob.post(FINCH, {"body": body}).json()["number"] == 2
    return bob


def test_the_difference_as_text(two: Any) -> None:
    answer = two.get(f"{FINCH}2/diff?against=1&as=text").json()
    assert (answer["before"], answer["after"]) == (1, 2)
    assert "+max_batch_size: 32" in answer["diff"].splitlines()
    assert two.get(f"{FINCH}2/diff?against=1").json()[0]["path"] == "max_batch_size"
    assert two.get(f"{FINCH}2/diff?against=1&as=picture").status_code == 400


def test_going_back(two: Any, api: Callable[..., Any]) -> None:
    stale = two.get(f"{FINCH}1/").headers["ETag"]
    assert two.post(f"{FINCH}1/revert", {}, headers={"If-Match": stale}).status_code == 412
    seen = two.get(f"{FINCH}0/").headers["ETag"]
    made = two.post(f"{FINCH}1/revert", {}, headers={"If-Match": seen})
    assert (made.status_code, made.json()["number"], made.json()["comment"]) == (201, 3, "Back to config 1.")
    assert made.json()["digest"] == two.get(f"{FINCH}1/").json()["digest"]
    assert two.post(f"{FINCH}9/revert", {}).status_code == 404
    assert api("vera").post(f"{FINCH}1/revert", {}).status_code == 403


def test_copying(cast: Cast, two: Any, api: Callable[..., Any]) -> None:
    cast.ready_version("wagtail", b"another")
    copies = "/api/v1/projects/wren/models/wagtail/configs/copy"
    made = two.post(copies, {"model": "finch", "number": 2})
    assert made.status_code == 201, made.json()
    assert (made.json()["body"]["name"], made.json()["body"]["max_batch_size"]) == ("wagtail", 32)
    assert two.post(copies, {"model": "nobody"}).status_code == 404
    assert two.post(copies, {"model": "finch", "project": "elsewhere"}).status_code == 404
    assert api("vera").post(copies, {"model": "finch"}).status_code == 403
