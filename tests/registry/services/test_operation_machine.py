"""Operations under everything that happens to workers: death, delay, wrong clocks, doubled and lost messages.

Whatever the order, an operation ends once, its result is written once, its moves follow the table, and it is never
stuck: as soon as one healthy worker follows the hints of beat, everything ends.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from registry.domain.actors import Actor
from registry.domain.states import OPERATION, is_final
from registry.errors import InvalidTransition
from registry.models import Operation
from registry.services.operations import (
    MAX_ATTEMPTS,
    operation_cancel,
    operation_claim,
    operation_create,
    operation_fail,
    operation_renew,
    operation_report,
    operation_succeed,
    operations_due,
)
from tests.registry.moves import assert_one_path

SYSTEM = Actor.system("test")
LEASE_SECONDS = 30
# Seconds by which the clocks of the workers are wrong; the last one is more wrong than a lease is long.
SKEWS = (0, -20, 25, 600)

workers = st.integers(0, len(SKEWS) - 1)
which = st.integers(0, 1)


class Workers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.ended: dict[uuid.UUID, str] = {}
        self.results: dict[uuid.UUID, list[str]] = {}
        # (worker, operation) -> name of its newest attempt; a worker believes in it until it is told otherwise
        self.attempts: dict[tuple[int, int], str] = {}

    def teardown(self) -> None:
        try:
            self.a_healthy_worker_ends_everything()
        finally:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    def at(self, worker: int = 0) -> Any:
        return time_machine.travel(self.now + timedelta(seconds=SKEWS[worker]), tick=False)

    @initialize()
    def make(self) -> None:
        with self.at():
            self.operations = [
                operation_create(
                    kind="validate_version",
                    queue="jobs",
                    subject_type="version",
                    subject_id=uuid.uuid4(),
                    actor=SYSTEM,
                ).pk
                for _ in range(2)
            ]
        self.results = {pk: [] for pk in self.operations}

    @rule(seconds=st.sampled_from([1, 9, LEASE_SECONDS, LEASE_SECONDS + 1, 120]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(worker=workers, index=which, number=st.integers(0, 1_000_000))
    def a_message_arrives(self, worker: int, index: int, number: int) -> None:
        name = f"worker-{worker}:{number}:{len(self.attempts)}"
        with self.at(worker):
            if operation_claim(self.operations[index], name, LEASE_SECONDS) is not None:
                self.attempts[worker, index] = name

    @rule(worker=workers, index=which)
    def a_worker_dies(self, worker: int, index: int) -> None:
        self.attempts.pop((worker, index), None)

    @rule(worker=workers, index=which, act=st.sampled_from(["renew", "report", "succeed", "fail", "retry"]))
    def a_worker_goes_on(self, worker: int, index: int, act: str) -> None:
        name = self.attempts.get((worker, index))
        if name is None:
            return
        pk = self.operations[index]
        with self.at(worker):
            if act == "renew":
                told = operation_renew(pk, name, LEASE_SECONDS)
            elif act == "report":
                told = operation_report(pk, name, percent=50, message=name)
            elif act == "succeed":
                told = operation_succeed(pk, name, {"by": name})
            else:
                told = operation_fail(pk, name, code="broken", message="why", retry=act == "retry")
        if told and act in {"succeed", "fail"}:
            self.results[pk].append(name)
        if not told or act not in {"renew", "report"}:
            self.attempts.pop((worker, index))

    @rule(index=which)
    def somebody_cancels(self, index: int) -> None:
        with self.at():
            operation = Operation.objects.get(pk=self.operations[index])
            if is_final(OPERATION, operation.state):
                with pytest.raises(InvalidTransition):
                    operation_cancel(operation=operation, actor=SYSTEM)
            else:
                operation_cancel(operation=operation, actor=SYSTEM)

    @rule()
    def beat_looks(self) -> None:
        with self.at():
            operations_due(self.now)

    @invariant()
    def what_ended_stays_as_it_was(self) -> None:
        for operation in Operation.objects.filter(pk__in=getattr(self, "operations", [])):
            assert len(self.results[operation.pk]) <= 1
            assert operation.attempts <= MAX_ATTEMPTS
            if is_final(OPERATION, operation.state):
                assert self.ended.setdefault(operation.pk, operation.state) == operation.state
                if operation.state == "succeeded":
                    assert operation.result["by"] == self.results[operation.pk][0]
            else:
                assert operation.pk not in self.ended

    @invariant()
    def moves_follow_the_table(self) -> None:
        for operation in Operation.objects.filter(pk__in=getattr(self, "operations", [])):
            assert_one_path(OPERATION, operation.pk, "pending", operation.state)

    def a_healthy_worker_ends_everything(self) -> None:
        for step in range(20):
            self.now += timedelta(seconds=700)
            with self.at():
                for pk, _queue in operations_due(self.now):
                    if operation_claim(pk, f"healthy-{step}", LEASE_SECONDS) is not None:
                        assert operation_succeed(pk, f"healthy-{step}")
        left = Operation.objects.filter(pk__in=getattr(self, "operations", [])).values_list("state", flat=True)
        assert all(is_final(OPERATION, state) for state in left), [*left]


@pytest.mark.django_db
def test_operations_end_once_and_are_never_stuck() -> None:
    examples = settings(max_examples=15, stateful_step_count=25, suppress_health_check=[*HealthCheck], deadline=None)
    run_state_machine_as_test(Workers, settings=examples)  # type: ignore[no-untyped-call]
