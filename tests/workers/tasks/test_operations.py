from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from django.db import connections

from registry.domain.actors import Actor
from registry.errors import StorageFailed
from registry.models import Operation, Transition
from registry.services.operations import operation_cancel
from tests.workers import factories
from workers.locks.leases import Lease
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operation() -> Operation:
    user = factories.make_user()
    return Operation.objects.create(kind="test", queue="jobs", subject_type="version", subject_id=user.pk, actor=user)


def done(operation: Operation, lease: Lease) -> Mapping[str, Any]:
    lease.report(50, "half")
    return {"answer": 42}


def test_it_is_claimed_reported_and_finished(operation: Operation) -> None:
    assert work_on(operation.pk, {"test": done})
    operation.refresh_from_db()
    assert (operation.state, operation.progress_percent, operation.result) == ("succeeded", 100, {"answer": 42})
    assert operation.log == "half\n"
    moves = list(Transition.objects.filter(object_id=operation.pk).values_list("from_state", "to_state"))
    assert ("pending", "running") in moves
    assert ("running", "succeeded") in moves


def test_a_doubled_message_does_nothing(operation: Operation) -> None:
    work_on(operation.pk, {"test": done})

    def never(operation: Operation, lease: Lease) -> Mapping[str, Any]:
        raise AssertionError

    assert not work_on(operation.pk, {"test": never})


def test_two_workers_do_it_once(operation: Operation) -> None:
    runs: list[str] = []
    gate = threading.Barrier(4)

    def slow(operation: Operation, lease: Lease) -> Mapping[str, Any]:
        runs.append(lease.owner)
        return {}

    def worker() -> None:
        gate.wait(30)
        work_on(operation.pk, {"test": slow})
        connections.close_all()

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (NodeClientError(NodeErrorCode.UNREACHABLE, "gone"), "failed", "node_unreachable"),
        (StorageFailed("disk full"), "pending", "storage_failed"),
        (ZeroDivisionError("x"), "pending", "internal"),
    ],
)
def test_errors(operation: Operation, error: Exception, state: str, code: str) -> None:
    def fail(operation: Operation, lease: Lease) -> Mapping[str, Any]:
        raise error

    assert not work_on(operation.pk, {"test": fail}) or state == "failed"
    operation.refresh_from_db()
    assert operation.error is not None
    assert (operation.state, operation.error["code"]) == (state, code)


def test_unknown_kinds_fail_at_once(operation: Operation) -> None:
    work_on(operation.pk, {})
    operation.refresh_from_db()
    assert operation.error is not None
    assert operation.error["code"] == "unknown_kind"


def test_a_worker_that_lost_its_lease_writes_nothing(operation: Operation) -> None:
    def overtaken(operation: Operation, lease: Lease) -> Mapping[str, Any]:
        # This worker slept through its lease; another one takes over and finishes.
        Operation.objects.filter(pk=operation.pk).update(lease_until="2020-01-01T00:00:00Z")
        assert work_on(operation.pk, {"test": done})
        lease.report(90, "late")
        return {"answer": "late"}

    assert not work_on(operation.pk, {"test": overtaken})
    operation.refresh_from_db()
    assert (operation.result, operation.attempts) == ({"answer": 42}, 2)


def test_a_cancelled_one_stops_and_has_no_result(operation: Operation, settings: Any) -> None:
    settings.OPERATION_LEASE_SECONDS = 0.3

    def cancelled(operation: Operation, lease: Lease) -> Mapping[str, Any]:
        operation_cancel(operation=operation, actor=Actor.system("test"))
        assert lease._lost.wait(30)
        return {"answer": "too late"}

    assert not work_on(operation.pk, {"test": cancelled})
    operation.refresh_from_db()
    assert (operation.state, operation.result) == ("cancelled", None)
