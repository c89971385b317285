"""The pages of environments and fleets: rules saved, mistakes at their fields, what a change moves, and deletion."""

from __future__ import annotations

from typing import Any

import pytest

from registry.models import Environment, Fleet, Membership
from tests.console.conftest import join_node
from tests.console.web.conftest import Browse, Served

PROD = "/settings/environments/prod/"


def form(client: Any, path: str = PROD, **changes: Any) -> dict[str, Any]:
    """Return what a browser would send of the page's form."""
    context = client.get(path).context
    values: dict[str, Any] = {}
    windows = context.get("windows")
    forms = [context["form"], *([*windows, windows.management_form] if windows else [])]
    for one in forms:
        for field in one:
            value = field.value()
            if value is not False and value is not None:
                values[field.html_name] = value
    return {**values, **changes}


@pytest.fixture
def approver(served: Served) -> None:
    """Let Vera approve: Alice asked, and Bob sent the files."""
    Membership.objects.filter(user=served.cast.vera).update(role="approver")


def test_rules_are_saved(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    sent = form(
        alice,
        approvers="bob",
        approver_role="operator",
        check_smoke="warn",
        wait_minutes="2h",
        admins_bypass="on",
        bypassers="alice, bob",
        **{
            "windows-0-cron": "0 18 * * FRI",
            "windows-0-lasts": "62h",
            "windows-0-time_zone": "Europe/Berlin",
            "windows-0-name": "weekend",
        },
    )
    answer = alice.post(PROD, sent)
    assert answer.status_code == 302, (answer.context["form"].errors, answer.context["windows"].errors)
    saved = Environment.objects.get(slug="prod")
    assert (saved.wait_minutes, saved.approver_role, saved.admins_bypass) == (120, "operator", True)
    assert saved.required_checks == [{"kind": "smoke", "allow_warn": True}]
    assert [user.username for user in saved.approvers.all()] == ["bob"]
    (window,) = saved.windows
    assert (window["effect"], window["duration_minutes"], window["name"]) == ("deny", 3720, "weekend")
    again = form(alice, **{"windows-0-cron": ""})
    assert (again["windows-0-lasts"], again["wait_minutes"], again["check_smoke"]) == ("62h", "2h", "warn")
    assert alice.post(PROD, again).status_code == 302
    assert Environment.objects.get(slug="prod").windows == []


def test_mistakes_are_shown_at_their_fields_and_nothing_is_saved(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    sent = form(
        alice,
        wait_minutes="soon",
        **{"windows-0-cron": "99 * * * *", "windows-0-lasts": "never", "windows-0-time_zone": "Mars"},
    )
    answer = alice.post(PROD, sent)
    assert answer.status_code == 422
    window = answer.context["windows"][0]
    assert set(window.errors) == {"cron", "lasts", "time_zone"}
    assert "wait_minutes" in answer.context["form"].errors
    unknown = alice.post(PROD, form(alice, approvers="nobody"))
    assert unknown.status_code == 422
    assert "approvers" in unknown.context["form"].errors
    assert Environment.objects.get(slug="prod").wait_minutes == 0


def test_two_who_edit_at_once_do_not_overwrite_each_other(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    mine = form(alice, wait_minutes="1h")
    assert alice.post(PROD, form(alice, wait_minutes="2h")).status_code == 302
    answer = alice.post(PROD, mine)
    assert answer.status_code == 422
    assert "Somebody changed it" in answer.text
    assert Environment.objects.get(slug="prod").wait_minutes == 120


def test_others_read_the_rules_and_change_nothing(served: Served, browse: Browse) -> None:
    bob = browse("bob")
    page = bob.get(PROD).text
    assert 'data-testid="environment-save" disabled' in page
    assert bob.post(PROD, form(bob, wait_minutes="1h")).status_code in (403, 422)
    assert Environment.objects.get(slug="prod").wait_minutes == 0
    assert bob.post(f"{PROD}delete/").status_code == 403


def test_another_selector_is_shown_with_what_it_moves_before_it_is_saved(served: Served, browse: Browse) -> None:
    join_node(served.cast, "green-1", environment="green")
    alice, path = browse("alice"), "/settings/fleets/prod/"
    sent = form(alice, path, labels="environment=green")
    first = alice.post(path, sent)
    assert first.status_code == 200
    assert first.context["moves"]["join"] == ["green-1"]
    assert first.context["moves"]["waiting"] == 1
    assert Fleet.objects.get(slug="prod").selector != {"environment": "green"}
    assert alice.post(path, {**sent, "confirmed": "environment=green"}).status_code == 302
    assert Fleet.objects.get(slug="prod").selector == {"environment": "green"}


def test_what_is_used_is_not_deleted(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    assert alice.post(f"{PROD}delete/").status_code == 409
    assert alice.post("/settings/fleets/prod/delete/").status_code == 409
    served.cast.environment("spare", approvals=0)
    assert alice.post("/settings/fleets/spare/delete/").status_code == 302
    assert alice.post("/settings/environments/spare/delete/").status_code == 302
    assert not Environment.objects.filter(slug="spare").exists()


def test_a_request_shows_the_rules_and_whom_to_ask(served: Served, approver: None, browse: Browse) -> None:
    alice = browse("alice")
    alice.post(PROD, form(alice, check_smoke="pass", wait_minutes="2h", admins_bypass="on"))
    page = browse("vera").get(f"/approvals/{served.approval.pk}/").text
    assert "has no check “Smoke inference” yet" in page
    assert "They may approve:" in page
    assert "Bypass the rules" not in page
    assert "Bypass the rules" in alice.get(f"/approvals/{served.approval.pk}/").text
    plan = {"version": "1", "config": "0", "fleet": "prod", "strategy": "replace", "sticky": "", "comment": ""}
    assert "It waits 120 minutes" in alice.post("/p/wren/models/finch/deploy/plan/", plan).text


def test_a_request_names_its_fleet_and_what_it_replaced_afterwards(
    served: Served, approver: None, browse: Browse
) -> None:
    fleet = served.approval.deployment.fleet
    vera, address = browse("vera"), f"/approvals/{served.approval.pk}/"
    page = vera.get(address).text
    assert 'data-testid="approval-target"' in page
    assert fleet.name in page
    assert all(f"{name}={value}" in page for name, value in fleet.selector.items())
    decision = {"decision": "approve", "comment": "", "plan_digest": served.approval.plan_digest}
    vera.post(f"{address}review/", decision)
    served.approval.refresh_from_db()
    assert served.approval.state == "applied"
    page = vera.get(address).text
    assert '<th scope="row">Before</th><td colspan="4" class="muted">nothing' in page
    assert '<th scope="row">Now</th>' not in page


def test_an_approved_change_says_when_it_starts(served: Served, approver: None, browse: Browse) -> None:
    alice, vera = browse("alice"), browse("vera")
    alice.post(PROD, form(alice, wait_minutes="2h"))
    address = f"/approvals/{served.approval.pk}/"
    decision = {"decision": "approve", "comment": "", "plan_digest": served.approval.plan_digest}
    assert vera.post(f"{address}review/", decision)["Location"] == address
    page = vera.get(address).text
    assert "it starts by itself" in page
    assert 'data-testid="review-reject"' in page
    assert 'data-testid="review-approve"' not in page
    assert "it starts by itself" in alice.get(f"/p/wren/deployments/{served.approval.deployment_id}/").text
    assert "Waits for its time" in alice.get("/approvals/").text


def test_comments_and_wishes_for_changes_are_shown(served: Served, approver: None, browse: Browse) -> None:
    address = f"/approvals/{served.approval.pk}/"
    digest = served.approval.plan_digest
    vera, bob = browse("vera"), browse("bob")
    said = {"decision": "comment", "comment": "Why now?", "plan_digest": digest}
    assert bob.post(f"{address}review/", {**said, "comment": ""}).status_code == 422
    bob.post(f"{address}review/", said)
    vera.post(f"{address}review/", {"decision": "request_changes", "comment": "Smaller first.", "plan_digest": digest})
    page = browse("alice").get(address).text
    assert "Why now?" in page
    assert "1 reviewer asks for changes." in page


def test_a_bypass_is_shown_where_it_was_felt(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    alice.post(PROD, form(alice, admins_bypass="on", check_smoke="pass"))
    address = f"/approvals/{served.approval.pk}/"
    sent = {"reason": "The site is down.", "plan_digest": served.approval.plan_digest}
    assert browse("bob").post(f"{address}bypass/", sent).status_code == 403
    done = alice.post(f"{address}bypass/", sent)
    assert done.status_code == 302
    for page in (alice.get(done["Location"]).text, alice.get(address).text):
        assert "The site is down." in page
