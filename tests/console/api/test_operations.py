"""Operations through the API."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from registry.models import Operation
from registry.services import operations
from tests.console.conftest import Cast


def pending(cast: Cast) -> Operation:
    return operations.operation_create(
        kind="validate_version",
        queue="jobs",
        subject_type="modelversion",
        subject_id=uuid.uuid4(),
        project=cast.project,
        actor=cast.actor("bob"),
    )


def test_members_see_operations_and_outsiders_do_not(cast: Cast, api: Callable[..., Any]) -> None:
    operation = pending(cast)
    address = f"/api/v1/operations/{operation.pk}/"
    assert api("vera").get(address).json()["actor"] == "bob"
    assert [row["id"] for row in api("vera").get("/api/v1/operations/?state=pending").json()["results"]] == [
        str(operation.pk)
    ]
    assert api("vera").get("/api/v1/operations/?subject_id=rubbish").status_code == 400
    assert api("charlie").get(address).status_code == 404
    assert api("charlie").get("/api/v1/operations/").json()["results"] == []


def test_operation_is_cancelled_once_and_not_by_viewers(cast: Cast, api: Callable[..., Any]) -> None:
    address = f"/api/v1/operations/{pending(cast).pk}/"
    assert api("vera").post(f"{address}cancel").status_code == 403
    assert api("charlie").post(f"{address}cancel").status_code == 404
    assert api("bob").post(f"{address}cancel").json()["state"] == "cancelled"
    assert api("bob").post(f"{address}cancel").status_code == 409
