from __future__ import annotations

import threading

import pytest
from django.db import connections

from registry.models import Deployment, Operation
from tests.workers import factories
from workers.locks import advisory_lock
from workers.tasks import definitions
from workers.tasks.hints import RECONCILE_DEPLOYMENT, RECONCILE_NODE, RUN_OPERATION

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_sweep_finds_what_lost_hints_left(hints: list[tuple[str, str]]) -> None:
    version = factories.make_ready_version()
    fleet = factories.make_fleet()
    node = factories.make_node()
    outcome = factories.deploy(version.model, fleet, v1=100)
    waiting = factories.make_operation(factories.make_version(version.model, {"model.onnx": b"x"}))
    hints.clear()  # nothing of all that arrived
    definitions.sweep()
    assert (RUN_OPERATION, str(waiting.pk)) in hints
    assert (RECONCILE_NODE, str(node.pk)) in hints
    assert (RECONCILE_DEPLOYMENT, str(outcome.deployment.pk)) in hints


def test_a_sweep_leaves_alone_what_is_worked_on(hints: list[tuple[str, str]]) -> None:
    version = factories.make_version(factories.make_model(), {"model.onnx": b"x"})
    operation = factories.make_operation(version)
    Operation.objects.filter(pk=operation.pk).update(state="running", lease_until="2999-01-01T00:00:00Z")
    definitions.sweep()
    assert not [hint for hint in hints if hint[1] == str(operation.pk)]


def test_a_pass_over_a_deployment_asks_for_pushes(hints: list[tuple[str, str]]) -> None:
    version = factories.make_ready_version()
    fleet = factories.make_fleet()
    node = factories.make_node()
    deployment = factories.deploy(version.model, fleet, v1=100).deployment
    hints.clear()
    definitions.reconcile_deployment(str(deployment.pk))
    assert hints == [(RECONCILE_NODE, str(node.pk))]


def test_contended_passes_end_quietly(hints: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.locks.advisory._RETRY_SECONDS", 0.5)
    deployment = Deployment(pk=factories.make_user().pk)
    done: list[bool] = []

    def other() -> None:
        definitions.reconcile_deployment(str(deployment.pk))
        connections.close_all()
        done.append(True)

    with advisory_lock("deployment", deployment.pk):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert done
