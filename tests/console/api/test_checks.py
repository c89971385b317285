"""Checks made again through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from registry.models import Check, Operation
from tests.console.conftest import Cast


def address(kind: str) -> str:
    return f"/api/v1/projects/wren/models/finch/versions/1/checks/{kind}/rerun"


def test_a_check_is_made_again_as_an_operation(cast: Cast, api: Callable[..., Any]) -> None:
    version = cast.ready_version()
    answer = api("bob").post(address("smoke"))
    assert answer.status_code == 202
    operation = Operation.objects.get(kind="check_version")
    assert answer.headers["Location"] == f"/api/v1/operations/{operation.pk}/"
    assert Check.objects.get(version=version, kind="smoke").verdict == "running"
    again = api("bob").post(address("smoke"))
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


def test_a_repeated_request_with_a_key_is_one_operation(cast: Cast, api: Callable[..., Any]) -> None:
    cast.ready_version()
    key = {"HTTP_IDEMPOTENCY_KEY": f"again-{cast.project.pk}"}
    bob = api("bob")
    first, second = (bob.post(address("smoke"), **key) for _time in range(2))
    assert first.json()["id"] == second.json()["id"]


@pytest.mark.parametrize(
    ("who", "kind", "status"), [("vera", "smoke", 403), ("bob", "conversion", 404), ("bob", "x", 404)]
)
def test_what_is_refused(cast: Cast, api: Callable[..., Any], who: str, kind: str, status: int) -> None:
    cast.ready_version()
    assert api(who).post(address(kind)).status_code == status
