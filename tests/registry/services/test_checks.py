from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from registry.errors import Conflict, NotFound, PermissionDenied
from registry.models import AuditEvent, Check, Environment, ModelVersion, Operation, OperationState
from registry.services.checks import KIND, check_finish, check_rerun, check_start, checks_stranded
from registry.services.operations import operation_cancel, operation_claim, operation_fail
from registry.services.versions import version_create
from tests.registry.conftest import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def version(world: World) -> ModelVersion:
    return world.ready(world.model("lark"))


def rerun(world: World, version: ModelVersion, kind: str = "smoke", user: Any = None) -> Operation:
    return check_rerun(version=version, kind=kind, actor=world.actor(user or world.carol))


def verdict_of(version: ModelVersion, kind: str) -> str:
    return Check.objects.get(version=version, kind=kind).verdict


def test_it_is_an_audited_operation_for_a_worker(world: World, version: ModelVersion) -> None:
    operation = rerun(world, version)
    assert (operation.kind, operation.queue, operation.params) == (KIND, "jobs", {"kinds": ["smoke"]})
    assert verdict_of(version, "smoke") == "running"
    event = AuditEvent.objects.get(action="version.recheck")
    assert (event.before, event.after) == ({"kind": "smoke", "verdict": ""}, {"kind": "smoke"})


def test_a_second_click_waits_for_the_first(world: World, version: ModelVersion) -> None:
    operation = rerun(world, version)
    with pytest.raises(Conflict, match="under way"):
        rerun(world, version, "latency")
    operation_cancel(operation=operation, actor=world.actor(world.carol))
    assert rerun(world, version, "latency").pk != operation.pk


@pytest.mark.parametrize("kind", ["format", "conversion", "no-such-kind"])
def test_what_a_version_does_not_have_is_not_made_again(world: World, version: ModelVersion, kind: str) -> None:
    with pytest.raises(NotFound):
        rerun(world, version, kind)
    assert not Operation.objects.filter(kind=KIND).exists()


def test_what_it_has_is(world: World, version: ModelVersion) -> None:
    check_finish(check=check_start(version=version, kind="config"), verdict="warn", summary="")
    assert rerun(world, version, "config").params == {"kinds": ["config"]}


def test_a_version_without_a_number_has_to_be_submitted(world: World) -> None:
    version = version_create(model=world.model("lark"), actor=world.actor(world.carol))
    with pytest.raises(Conflict, match="no number"):
        rerun(world, version)


def test_viewers_may_not(world: World, version: ModelVersion) -> None:
    with pytest.raises(PermissionDenied):
        rerun(world, version, user=world.dan)


def test_a_new_version_is_tried_where_there_is_a_sandbox(world: World, settings: Any) -> None:
    settings.SANDBOX = True
    version = world.ready(world.model("lark"))
    operation = Operation.objects.get(kind=KIND)
    assert (operation.subject_id, operation.params) == (version.pk, {"kinds": ["smoke"]})
    assert verdict_of(version, "smoke") == "running"


def test_what_an_environment_requires_follows_by_itself(world: World, settings: Any) -> None:
    settings.SANDBOX = True
    required = [{"kind": "latency", "allow_warn": True}, {"kind": "format", "allow_warn": False}]
    Environment.objects.filter(pk=world.production.environment_id).update(required_checks=required)
    version = world.ready(world.model("lark"))
    assert Operation.objects.get(kind=KIND).params == {"kinds": ["smoke", "latency"]}
    assert verdict_of(version, "latency") == "running"


def test_checks_that_nobody_makes_any_more_end_with_the_reason(world: World, version: ModelVersion) -> None:
    operation = rerun(world, version)
    assert checks_stranded() == 0
    assert operation_claim(operation.pk, "w1") is not None
    assert operation_fail(operation.pk, "w1", code="worker_lost", message="The worker was lost.")
    assert checks_stranded() == 1
    row = Check.objects.get(version=version, kind="smoke")
    assert (row.verdict, row.summary) == ("error", "The check could not be finished: The worker was lost.")


def test_checks_of_a_cancelled_operation_end(world: World, version: ModelVersion) -> None:
    operation_cancel(operation=rerun(world, version), actor=world.actor(world.carol))
    assert checks_stranded() == 1
    assert "cancelled" in Check.objects.get(version=version, kind="smoke").summary


def test_a_check_of_a_killed_worker_is_made_by_the_next(world: World, version: ModelVersion) -> None:
    operation = rerun(world, version)
    assert operation_claim(operation.pk, "w1") is not None
    Operation.objects.filter(pk=operation.pk).update(lease_until=timezone.now())
    assert checks_stranded() == 0
    again = operation_claim(operation.pk, "w2")
    assert again is not None
    assert (again.state, again.params) == (OperationState.RUNNING, {"kinds": ["smoke"]})
