"""The stages of a change on the page of its deployment and on its own."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from registry.models import Environment, Membership, Rollout, ServingNode
from registry.services import approvals
from registry.services.rollout_steering import rollout_pause
from registry.services.rollouts import rollout_move
from tests.console.web.conftest import Browse, Served


def page_of(served: Served) -> str:
    return f"/p/wren/deployments/{served.deployment.pk}/"


def stage(text: str, name: str) -> str:
    """Return the part of a page about one stage of the newest change."""
    found = text[text.index(f'data-stage="{name}"') :]
    return found[: found.index("</li>")]


def test_the_page_says_what_loading_waits_for_and_when_it_gives_up(served: Served, browse: Browse) -> None:
    bob = browse("bob")
    silent = stage(bob.get(page_of(served)).text, "load")
    assert 'data-state="current"' in silent and 'aria-current="step"' in silent
    assert "no deadline while no node answers" in silent
    now = timezone.now()
    ServingNode.objects.update(lease_until=now + timedelta(minutes=5), last_seen_at=now, reachable_since=now)
    answering = stage(bob.get(page_of(served)).text, "load")
    assert "gives up at" in answering and "data-countdown" in answering
    assert "node-1" in answering
    assert 'data-state="ahead"' in stage(bob.get(page_of(served)).text, "verify")


def test_a_paused_change_says_who_holds_it(served: Served, browse: Browse) -> None:
    rollout_pause(rollout=served.rollout, reason="Lunch.", actor=served.cast.actor("alice"))
    paused = stage(browse("bob").get(page_of(served)).text, "load")
    assert 'data-state="paused"' in paused and "Lunch." in paused and "data-countdown" not in paused


def test_the_page_of_a_rollout_tells_what_happened(served: Served, browse: Browse) -> None:
    own = f"{page_of(served)}rollouts/{served.rollout.pk}/"
    assert own in browse("bob").get(page_of(served)).text
    for phase, cause in (("verifying", "Every unit is ready."), ("succeeded", "Every route is in force.")):
        rollout_move(rollout=Rollout.objects.get(pk=served.rollout.pk), to=phase, cause=cause)
    text = browse("vera").get(own).text
    assert 'data-state="done"' in stage(text, "load") and "took" in stage(text, "load")
    assert "Every unit is ready." in text and "Every route is in force." in text
    other = f"/p/wren/deployments/{served.approval.deployment_id}/rollouts/{served.rollout.pk}/"
    assert browse("bob").get(other).status_code == 404
    assert browse("charlie").get(own).status_code == 404


def test_a_change_that_waits_shows_its_gates_before_it_begins(served: Served, browse: Browse) -> None:
    Environment.objects.filter(slug="prod").update(wait_minutes=30)
    page = f"/p/wren/deployments/{served.approval.deployment_id}/"
    asked = browse("bob").get(page).text
    assert "0 of 1 approvals." in stage(asked, "approval") and "expires at" in stage(asked, "approval")
    assert "It waits 30 minutes once nothing else is missing." in stage(asked, "start")
    Membership.objects.filter(user=served.cast.vera).update(role="approver")
    approvals.approval_review(
        approval=served.approval,
        decision="approve",
        comment="",
        plan_digest=served.approval.plan_digest,
        actor=served.cast.actor("vera"),
    )
    waiting = browse("bob").get(page).text
    assert 'data-state="done"' in stage(waiting, "approval")
    assert 'data-state="waits"' in stage(waiting, "start") and "starts at" in stage(waiting, "start")
