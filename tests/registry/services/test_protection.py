"""Rules of environments on real rows: what waits, what starts, what becomes void, and who may go past the rules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from registry.domain.actors import Actor
from registry.errors import Conflict, InvalidTransition, PermissionDenied, StaleWrite, ValidationFailed
from registry.models import ApprovalRequest, AuditEvent, Check, Deployment, Environment, Membership, Rollout, Verdict
from registry.selectors import clock
from registry.selectors.approvals import approval_detail, inbox, inbox_size, may_review
from registry.selectors.standing import memberships_remembered
from registry.services import approvals, deployments, fleet, versions
from registry.services.approval_progress import approvals_advance, approvals_void_changed

FIRST = {"version": 1, "weight": 100}
ALWAYS_CLOSED = {
    "name": "freeze", "effect": "deny", "cron": "* * * * *", "duration_minutes": 10, "time_zone": "UTC",
}  # fmt: skip


class Clock:
    """The database's clock, that a test can set forward."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **parts: int) -> None:
        self.now += timedelta(**parts)


@pytest.fixture
def time(world: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock(clock.database_now())
    monkeypatch.setattr(clock, "database_now", fake)
    return fake


def protect(world: Any, where: str = "production", **rules: Any) -> Environment:
    environment = Environment.objects.get(slug=where)
    return fleet.environment_update(environment=environment, actor=world.actor(world.alice), **rules)


def request(world: Any, target: Any = None, user: Any = None, number: int = 1) -> Any:
    model = world.project.models.filter(slug="mlp").first() or world.model("mlp")
    while model.versions.filter(number=number).first() is None:
        world.ready(model)
    spec = world.spec({"version": number, "weight": 100})
    return world.deploy(model, target or world.production, spec, user=user)


def review(world: Any, approval: ApprovalRequest, user: Any, decision: str = "approve") -> Any:
    approvals.approval_review(
        approval=approval,
        decision=decision,
        comment="read it",
        plan_digest=approval.plan_digest,
        actor=world.actor(user),
    )
    approval.refresh_from_db()


def bypass(world: Any, approval: ApprovalRequest, user: Any, reason: str = "The site is down.") -> Any:
    rollout = approvals.approval_bypass(
        approval=approval, reason=reason, plan_digest=approval.plan_digest, actor=world.actor(user)
    )
    approval.refresh_from_db()
    return rollout


def test_an_environment_without_rules_starts_at_once(world: Any) -> None:
    outcome = request(world, world.development)
    assert outcome.approval is None
    assert outcome.rollout is not None


def test_the_wait_begins_with_the_approval_and_ends_by_the_clock(world: Any, time: Clock) -> None:
    protect(world, wait_minutes=30)
    approval = request(world).approval
    time.forward(hours=5)
    review(world, approval, world.bob)
    assert (approval.state, approval.due_at) == ("approved", time.now + timedelta(minutes=30))
    assert not Rollout.objects.exists()
    time.forward(minutes=29)
    assert approvals_advance() == 0
    time.forward(minutes=1)
    assert approvals_advance() == 1
    approval.refresh_from_db()
    assert approval.state == "applied"
    assert Rollout.objects.get().created_by == world.carol
    assert approvals_advance() == 0
    assert AuditEvent.objects.filter(action="approval.wait").count() == 1


def test_a_wait_without_approval_starts_by_itself(world: Any, time: Clock) -> None:
    protect(world, "development", wait_minutes=10)
    outcome = request(world, world.development)
    assert (outcome.approval.state, outcome.rollout) == ("approved", None)
    again = request(world, world.development)
    assert again.approval == outcome.approval
    time.forward(minutes=10)
    approvals_advance()
    assert Rollout.objects.get().phase == "progressing"


def test_a_closed_window_is_waited_for(world: Any, time: Clock) -> None:
    opens = (time.now + timedelta(days=2)).replace(minute=0)
    window = {"effect": "allow", "cron": f"0 {opens.hour} {opens.day} {opens.month} *", "duration_minutes": 60}
    protect(world, windows=[window])
    approval = request(world).approval
    review(world, approval, world.bob)
    assert approval.state == "approved"
    assert approval.due_at.replace(second=0, microsecond=0) == opens.replace(second=0, microsecond=0)
    time.now = approval.due_at
    approvals_advance()
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_rules_that_open_let_what_waits_start(world: Any, time: Clock) -> None:
    approval = request(world).approval
    protect(world, windows=[ALWAYS_CLOSED])
    review(world, approval, world.bob)
    # A window that never opens denies; the approval is kept.
    assert approval.state == "open"
    protect(world, windows=[])
    approvals_advance()
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_what_waits_is_void_when_its_plan_changes(world: Any, time: Clock) -> None:
    protect(world, wait_minutes=30)
    approval = request(world).approval
    review(world, approval, world.bob)
    version = approval.deployment.model.versions.get()
    versions.version_quarantine(version=version, reason="leaks", actor=world.actor(world.alice))
    time.forward(hours=1)
    approvals_advance()
    approval.refresh_from_db()
    assert approval.state == "voided"
    assert not Rollout.objects.exists()


def test_a_request_is_void_soon_after_its_plan_changed_without_anybody_acting(world: Any, time: Clock) -> None:
    protect(world, wait_minutes=30)
    waits, open_one = request(world).approval, request(world, world.fleet("canaries", protected=True)).approval
    review(world, waits, world.bob)
    assert approvals_void_changed() == 0
    versions.version_quarantine(
        version=waits.deployment.model.versions.get(), reason="leaks", actor=world.actor(world.alice)
    )
    assert approvals_void_changed() == 2
    for approval in (waits, open_one):
        approval.refresh_from_db()
        assert approval.state == "voided"
        assert "Version 1 is quarantined" in approval.state_reason
    assert AuditEvent.objects.filter(action="approval.void").count() == 2
    assert approvals_void_changed() == 0


def test_what_waits_is_void_when_an_approval_no_longer_counts(world: Any, time: Clock) -> None:
    protect(world, wait_minutes=30)
    approval = request(world).approval
    review(world, approval, world.bob)
    Membership.objects.filter(user=world.bob).update(role="viewer")
    time.forward(hours=1)
    approvals_advance()
    approval.refresh_from_db()
    assert approval.state == "voided"
    assert "0 of 1 approvals" in approval.state_reason


def test_what_waits_can_be_rejected_withdrawn_or_replaced(world: Any, time: Clock) -> None:
    protect(world, wait_minutes=30)
    first = request(world).approval
    review(world, first, world.bob)
    newer = request(world, number=2).approval
    first.refresh_from_db()
    assert (first.state, newer.state) == ("voided", "open")
    review(world, newer, world.bob)
    review(world, newer, world.alice, "reject")
    assert newer.state == "rejected"
    last = request(world, number=2).approval
    review(world, last, world.bob)
    approvals.approval_withdraw(approval=last, actor=world.actor(world.carol))
    time.forward(days=1)
    assert approvals_advance() == 0
    assert not Rollout.objects.exists()


def test_a_roll_back_never_waits_and_ends_what_waits(world: Any, time: Clock) -> None:
    for number in (1, 2):
        review(world, request(world, number=number).approval, world.bob)
    protect(world, wait_minutes=30, windows=[ALWAYS_CLOSED | {"cron": "0 0 * * *", "duration_minutes": 1439}])
    time.now = time.now.replace(hour=12)
    waiting = request(world, number=3).approval
    review(world, waiting, world.bob)
    assert waiting.state == "approved"
    outcome = deployments.deployment_rollback(
        deployment=Deployment.objects.get(), actor=world.actor(world.user("olga", "operator"))
    )
    assert outcome.rollout is not None
    waiting.refresh_from_db()
    assert waiting.state == "voided"


def test_a_wait_longer_than_the_life_of_a_request_does_not_expire_it(world: Any, time: Clock) -> None:
    protect(world, wait_minutes=43_200)
    approval = request(world).approval
    review(world, approval, world.bob)
    time.forward(minutes=43_199)
    assert approvals.approvals_expire(time.now) == 0
    time.forward(minutes=1)
    approvals_advance()
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_required_checks_hold_up_until_they_pass(world: Any, time: Clock) -> None:
    model = world.model("mlp")
    version = world.ready(model)
    check = Check.objects.create(version=version, kind="smoke", verdict=Verdict.RUNNING)
    protect(world, required_checks=[{"kind": "smoke", "allow_warn": True}])
    approval = request(world).approval
    review(world, approval, world.bob)
    assert approval.state == "open"
    detail = approval_detail(world.actor(world.bob), approval)
    assert detail.verdict.reasons == ("The check “Smoke inference” of v1: running.",)
    # It looks again by itself, which is no time at which it starts.
    assert approval.due_at is not None
    assert approval.starts_at is None
    time.forward(minutes=1)
    approvals_advance()
    approval.refresh_from_db()
    assert approval.state == "open"
    Check.objects.filter(pk=check.pk).update(verdict=Verdict.WARN)
    time.forward(minutes=1)
    approvals_advance()
    approval.refresh_from_db()
    assert approval.state == "applied"


def test_a_missing_check_holds_up_without_approvals_too(world: Any) -> None:
    protect(world, "development", required_checks=[{"kind": "smoke"}])
    outcome = request(world, world.development)
    assert outcome.approval.state == "open"
    assert "no check" in approval_detail(world.actor(world.bob), outcome.approval).verdict.reasons[0]


def waiting(actor: Actor) -> int:
    """Return the number at the entry of the navigation, as a page counts it."""
    with memberships_remembered():
        return inbox_size(actor)


def test_only_named_approvers_count(world: Any) -> None:
    dora = world.user("dora", "approver")
    approval = request(world).approval
    review(world, approval, world.bob, "request_changes")
    protect(world, approvers=["dora"])
    detail = approval_detail(world.actor(world.bob), approval)
    assert not detail.may_review
    assert "only these approve: dora" in detail.may_review.reason
    assert detail.changes_requested == 0
    assert [user.username for user in detail.still_asked] == ["dora"]
    assert not inbox(world.actor(world.bob)).exists()
    assert inbox(world.actor(dora)).get() == approval
    assert (waiting(world.actor(dora)), waiting(world.actor(world.bob))) == (1, 0)
    with pytest.raises(PermissionDenied, match="only these"):
        review(world, approval, world.bob)
    review(world, approval, dora)
    assert approval.state == "applied"


def test_a_group_of_approvers_is_a_role_in_the_project(world: Any) -> None:
    olga = world.user("olga", "operator")
    protect(world, approver_role="operator")
    approval = request(world).approval
    assert not may_review(world.actor(world.bob), approval)
    assert may_review(world.actor(olga), approval)
    assert inbox(world.actor(olga)).exists()
    assert not inbox(world.actor(world.bob)).exists()
    assert [waiting(world.actor(one)) for one in (olga, world.bob, world.eve)] == [1, 0, 0]
    protect(world, approvers=["bob"])
    assert inbox(world.actor(world.bob)).exists()
    review(world, approval, world.bob)
    assert approval.state == "applied"


def test_rules_that_nobody_can_meet_are_refused(world: Any) -> None:
    for rules in (
        {"required_approvals": 2, "approvers": ["bob"]},
        {"approvers": ["nobody"]},
        {"approvers": ["robot"]},
        {"approver_role": "viewer"},
        {"wait_minutes": 43_201},
        {"windows": [{"effect": "deny", "cron": "nonsense", "duration_minutes": 1}]},
        {"required_checks": [{"kind": "nonsense"}]},
        {"name": " "},
    ):
        with pytest.raises(ValidationFailed):
            protect(world, **rules)
    assert AuditEvent.objects.filter(action="environment.update").count() == 0
    with pytest.raises(PermissionDenied):
        fleet.environment_update(environment=world.production.environment, wait_minutes=0, actor=world.actor(world.bob))


def test_nobody_goes_past_the_rules_unless_the_environment_lets_them(world: Any) -> None:
    approval = request(world).approval
    for user in (world.alice, world.bob, world.carol, world.robot):
        with pytest.raises(PermissionDenied):
            bypass(world, approval, user)


def test_going_past_the_rules_is_recorded(world: Any, time: Clock) -> None:
    protect(world, admins_bypass=True, wait_minutes=60, required_checks=[{"kind": "smoke"}])
    approval = request(world).approval
    with pytest.raises(ValidationFailed):
        bypass(world, approval, world.alice, reason="  ")
    with pytest.raises(PermissionDenied):
        bypass(world, approval, world.bob)
    rollout = bypass(world, approval, world.alice)
    assert (approval.state, approval.bypassed_by, approval.bypass_reason) == (
        "applied",
        world.alice,
        "The site is down.",
    )
    assert rollout.approval == approval
    event = AuditEvent.objects.get(action="approval.bypass")
    assert event.after["skipped"] == [
        "0 of 1 approvals.",
        "v1 has no check “Smoke inference” yet.",
        "It waits 60 minutes once nothing else is missing.",
    ]
    with pytest.raises(InvalidTransition):
        bypass(world, approval, world.alice)


def test_service_accounts_go_past_the_rules_only_when_named(world: Any) -> None:
    type(world.robot).objects.filter(pk=world.robot.pk).update(site_role="admin")
    world.robot.refresh_from_db()
    protect(world, admins_bypass=True)
    approval = request(world).approval
    with pytest.raises(PermissionDenied, match="does not let you"):
        bypass(world, approval, world.robot)
    protect(world, bypassers=["robot"])
    bypass(world, approval, world.robot)
    assert approval.state == "applied"


def test_a_named_stranger_does_not_see_the_project(world: Any) -> None:
    protect(world, bypassers=["eve"])
    approval = request(world).approval
    with pytest.raises(PermissionDenied, match="not a member"):
        bypass(world, approval, world.eve)


def test_going_past_the_rules_keeps_the_plan(world: Any) -> None:
    protect(world, admins_bypass=True)
    approval = request(world).approval
    with pytest.raises(StaleWrite):
        approvals.approval_bypass(approval=approval, reason="now", plan_digest="0" * 64, actor=world.actor(world.alice))
    version = approval.deployment.model.versions.get()
    versions.version_quarantine(version=version, reason="leaks", actor=world.actor(world.alice))
    with pytest.raises(Conflict, match="void"):
        bypass(world, approval, world.alice)
    assert not Rollout.objects.exists()


def test_comments_decide_nothing(world: Any) -> None:
    approval = request(world).approval
    review(world, approval, world.bob, "request_changes")
    for user in (world.carol, world.bob, world.robot):
        review(world, approval, user, "comment")
    detail = approval_detail(world.actor(world.bob), approval)
    assert (detail.changes_requested, detail.approvals_given, len(detail.reviews)) == (1, 0, 4)
    with pytest.raises(ValidationFailed):
        approvals.approval_review(approval=approval, decision="comment", comment=" ", actor=world.actor(world.bob))
    with pytest.raises(PermissionDenied):
        review(world, approval, world.eve, "comment")
    review(world, approval, world.bob)
    assert approval.state == "applied"
    review(world, approval, world.carol, "comment")


def test_the_system_approves_nothing(world: Any) -> None:
    approval = request(world).approval
    assert not may_review(Actor.system("x"), approval)


def test_environments_and_fleets_are_deleted_only_when_nothing_is_deployed(world: Any) -> None:
    admin = world.actor(world.alice)
    request(world)
    with pytest.raises(Conflict, match="1 deployments"):
        fleet.environment_delete(environment=world.production.environment, actor=admin)
    with pytest.raises(Conflict):
        fleet.fleet_delete(fleet=world.production, actor=admin)
    with pytest.raises(PermissionDenied):
        fleet.environment_delete(environment=world.development.environment, actor=world.actor(world.bob))
    fleet.environment_delete(environment=world.development.environment, actor=admin)
    assert not Environment.objects.filter(slug="development").exists()
    spare = fleet.fleet_create(
        slug="spare", name="", environment=world.production.environment, selector={}, actor=admin
    )
    fleet.fleet_delete(fleet=spare, actor=admin)
    assert AuditEvent.objects.filter(action__in=["environment.delete", "fleet.delete"]).count() == 2


def test_a_selector_moves_nodes_and_voids_requests(world: Any) -> None:
    node = world.node("n1", "production")
    other = world.node("n2", "green")
    approval = request(world).approval
    before, seen = node.desired_generation, other.desired_generation
    fleet.fleet_update(fleet=world.production, selector={"environment": "green"}, actor=world.actor(world.alice))
    for one in (node, other):
        one.refresh_from_db()
    assert node.desired_generation == before + 1
    assert other.desired_generation == seen + 1
    with pytest.raises(Conflict, match="void"):
        review(world, approval, world.bob)


def test_a_selector_that_would_serve_one_name_twice_is_refused(world: Any) -> None:
    world.node("n1", "development")
    request(world, world.development)
    review(world, request(world).approval, world.bob)
    with pytest.raises(Conflict, match="served twice"):
        fleet.fleet_update(
            fleet=world.production, selector={"environment": "development"}, actor=world.actor(world.alice)
        )
