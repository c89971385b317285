from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from registry import signals
from registry.domain.actors import Actor
from registry.errors import InvalidTransition, PermissionDenied
from registry.models import Operation, Transition
from registry.services import operations
from registry.services.operations import (
    operation_cancel,
    operation_claim,
    operation_create,
    operation_fail,
    operation_renew,
    operation_report,
    operation_succeed,
    operations_due,
    operations_purge,
)

SYSTEM = Actor.system("test")


def make(**changes: Any) -> Operation:
    arguments: dict[str, Any] = {
        "kind": "validate_version",
        "queue": "jobs",
        "subject_type": "version",
        "subject_id": uuid.uuid4(),
        "actor": SYSTEM,
    }
    return operation_create(**{**arguments, **changes})


def expire(operation: Operation) -> None:
    Operation.objects.filter(pk=operation.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


@pytest.mark.django_db
def test_a_claim_is_exclusive_until_its_lease_ends() -> None:
    operation = make()
    claimed = operation_claim(operation.id, "first")
    assert claimed is not None
    assert (claimed.state, claimed.attempts) == ("running", 1)
    assert operation_claim(operation.id, "second") is None
    expire(operation)
    again = operation_claim(operation.id, "second")
    assert again is not None
    assert (again.lease_owner, again.attempts) == ("second", 2)


@pytest.mark.django_db
def test_whoever_lost_the_lease_writes_nothing() -> None:
    operation = make()
    operation_claim(operation.id, "first")
    expire(operation)
    operation_claim(operation.id, "second")
    assert not operation_renew(operation.id, "first")
    assert not operation_report(operation.id, "first", percent=50)
    assert not operation_succeed(operation.id, "first", {"wrong": True})
    assert not operation_fail(operation.id, "first", code="x", message="y")
    assert operation_report(operation.id, "second", percent=50, message="half", log_line="one")
    assert operation_report(operation.id, "second", log_line="two")
    assert operation_succeed(operation.id, "second", {"right": True})
    operation.refresh_from_db()
    assert (operation.state, operation.result, operation.log) == ("succeeded", {"right": True}, "one\ntwo\n")
    assert not operation_succeed(operation.id, "second", {"again": True})


@pytest.mark.django_db(transaction=True)
def test_of_two_claimers_one_wins() -> None:
    operation = make()
    for _round in range(3):
        start, winners = threading.Barrier(4), []

        def run(owner: str, start: threading.Barrier = start, winners: list[str] = winners) -> None:
            try:
                start.wait(30)
                if operation_claim(operation.id, owner) is not None:
                    winners.append(owner)
            finally:
                connection.close()

        threads = [threading.Thread(target=run, args=[f"w{number}"]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(winners) == 1
        expire(operation)


@pytest.mark.django_db
def test_failure_with_retry_waits_and_ends_after_five_attempts() -> None:
    operation = make()
    for attempt in range(1, operations.MAX_ATTEMPTS + 1):
        claimed = operation_claim(operation.id, "w")
        assert claimed is not None, attempt
        assert operation_fail(operation.id, "w", code="busy", message="node is away", retry=True)
        if attempt < operations.MAX_ATTEMPTS:
            assert operation_claim(operation.id, "w") is None  # it pauses first
            expire(operation)
    operation.refresh_from_db()
    assert (operation.state, operation.error) == ("failed", {"code": "busy", "message": "node is away"})


@pytest.mark.django_db
def test_workers_that_die_again_and_again_end_it() -> None:
    operation = make()
    for _attempt in range(operations.MAX_ATTEMPTS):
        assert operation_claim(operation.id, "w") is not None
        expire(operation)
    assert operation_claim(operation.id, "w") is None
    operation.refresh_from_db()
    assert operation.state == "failed"
    assert operation.error is not None
    assert operation.error["code"] == "worker_lost"


@pytest.mark.django_db
def test_cancelling_a_pending_one_ends_it_now() -> None:
    operation = operation_cancel(operation=make(), actor=SYSTEM)
    assert operation.state == "cancelled"
    assert operation_claim(operation.id, "w") is None
    with pytest.raises(InvalidTransition):
        operation_cancel(operation=operation, actor=SYSTEM)


@pytest.mark.django_db
def test_cancelling_a_running_one_stops_its_worker() -> None:
    operation = make()
    operation_claim(operation.id, "w")
    operation_cancel(operation=operation, actor=SYSTEM)
    assert not operation_renew(operation.id, "w")
    operation.refresh_from_db()
    assert operation.state == "cancelled"
    assert not operation_succeed(operation.id, "w")


@pytest.mark.django_db
def test_cancelling_one_whose_worker_died_ends_at_the_next_claim() -> None:
    operation = make()
    operation_claim(operation.id, "w")
    operation_cancel(operation=operation, actor=SYSTEM)
    expire(operation)
    assert operation_claim(operation.id, "other") is None
    operation.refresh_from_db()
    assert operation.state == "cancelled"


def test_others_may_not_cancel(world: Any) -> None:
    operation = make(project=world.project, actor=world.actor(world.carol))
    with pytest.raises(PermissionDenied):
        operation_cancel(operation=operation, actor=world.actor(world.dan))
    assert operation_cancel(operation=operation, actor=world.actor(world.carol)).state == "cancelled"


@pytest.mark.django_db
def test_due_are_the_waiting_and_the_abandoned_ones() -> None:
    waiting, running, abandoned, done, deploy = make(), make(), make(), make(), make(kind="deploy")
    for one in (running, abandoned, done):
        operation_claim(one.id, "w")
    expire(abandoned)
    operation_succeed(done.id, "w")
    now = timezone.now()
    assert {found for found, _queue in operations_due(now)} == {waiting.id, abandoned.id}
    assert deploy.state == "pending"
    # Announced once, the waiting one is not announced again at once, but can be claimed at any time.
    assert [found for found, _queue in operations_due(now)] == [abandoned.id]
    assert operations_due(now + timedelta(seconds=21))
    assert operation_claim(waiting.id, "w") is not None


@pytest.mark.django_db
def test_every_move_is_a_row() -> None:
    operation = make()
    operation_claim(operation.id, "w")
    operation_succeed(operation.id, "w")
    rows = (
        Transition.objects.filter(object_id=operation.id).order_by("created_at").values_list("from_state", "to_state")
    )
    assert list(rows) == [("pending", "running"), ("running", "succeeded")]


@pytest.mark.django_db
def test_purge_takes_the_expired_and_the_old() -> None:
    now = timezone.now()
    make(expires_at=now - timedelta(seconds=1))
    kept = make(expires_at=now + timedelta(hours=1))
    old = make()
    operation_claim(old.id, "w")
    operation_succeed(old.id, "w")
    Operation.objects.filter(pk=old.pk).update(finished_at=now - timedelta(days=31))
    assert operations_purge(now) == 2
    assert list(Operation.objects.all()) == [kept]


@pytest.mark.django_db
def test_the_hint_leaves_after_the_commit(django_capture_on_commit_callbacks: Any) -> None:
    heard: list[Any] = []

    def listen(sender: Any, **extra: Any) -> None:
        heard.append((extra["operation_id"], extra["queue"]))

    signals.operation_ready.connect(listen)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            operation = make()
            assert heard == []
        assert heard == [(operation.id, "jobs")]
    finally:
        signals.operation_ready.disconnect(listen)
