"""When a change may start, and who signed what: on the pages where somebody is about to decide."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from registry.models import Check, Environment
from tests.console.web.conftest import Browse, Served

PLAN = {"version": "1", "config": "0", "fleet": "prod", "strategy": "replace", "sticky": "", "comment": ""}
PLAN_PATH = "/p/wren/models/finch/deploy/plan/"


def freeze(slug: str, *, opens_in: timedelta) -> datetime:
    """Close an environment until then, to the minute; return when it opens."""
    opens = datetime.now(UTC).replace(second=0, microsecond=0) + opens_in
    begins = opens - timedelta(hours=12)
    cron = f"{begins.minute} {begins.hour} {begins.day} {begins.month} *"
    window = {"name": "fair", "effect": "deny", "cron": cron, "duration_minutes": 12 * 60, "time_zone": "UTC"}
    Environment.objects.filter(slug=slug).update(windows=[window])
    return opens


def test_the_deploy_button_says_when_the_environment_opens(served: Served, browse: Browse) -> None:
    opens = freeze("prod", opens_in=timedelta(hours=2, minutes=5))
    alice = browse("alice")
    answer = alice.post(PLAN_PATH, PLAN).text
    assert 'id="deploy-opens" hx-swap-oob="true"' in answer
    assert "Closed for changes by “fair”" in answer
    assert f'data-countdown="{opens.isoformat()}"' in answer
    assert ", in 2 h 4 min" in answer or ", in 2 h 5 min" in answer
    assert "Closed for changes by “fair”" in browse("vera").get(f"/approvals/{served.approval.pk}/").text
    page = alice.get(f"/p/wren/deployments/{served.approval.deployment_id}/").text
    assert 'id="deployment-opens"' in page and "Closed for changes by “fair”" in page
    # The fleet of another environment is open.
    assert "Closed for changes" not in alice.post(PLAN_PATH, {**PLAN, "fleet": "dev"}).text


def test_a_wait_that_has_not_begun_is_no_moment(served: Served, browse: Browse) -> None:
    Environment.objects.filter(slug="prod").update(wait_minutes=120)
    answer = browse("alice").post(PLAN_PATH, PLAN).text
    assert "Starts 2h after nothing else is missing." in answer
    assert "data-countdown" not in answer


def test_a_change_that_nothing_holds_up_shows_no_window(served: Served, browse: Browse) -> None:
    freeze("dev", opens_in=timedelta(hours=1))
    # What is wanted already is no change.
    assert 'data-testid="opens"' not in browse("alice").post(PLAN_PATH, {**PLAN, "fleet": "dev"}).text


@pytest.mark.parametrize(
    ("verdict", "word"),
    [("pass", "Verified"), ("warn", "Not signed"), ("fail", "Not verified"), ("error", "Not verified")],
)
def test_the_review_says_who_signed_and_whether_that_was_verified(
    verdict: str, word: str, served: Served, browse: Browse
) -> None:
    page = f"/approvals/{served.approval.pk}/"
    assert "no signature was checked" in browse("vera").get(page).text
    signer = {"signer": {"name": "release", "fingerprint": "ab" * 32}} if verdict in ("pass", "fail") else {}
    Check.objects.create(
        version=served.version,
        kind="signature_verification",
        verdict=verdict,
        summary="What was found.",
        evidence=signer,
        finished_at=datetime.now(UTC) - timedelta(minutes=5),
    )
    shown = browse("vera").get(page).text
    row = shown[shown.index('data-testid="approval-signer"') :].split("</dd>")[0]
    assert f"<span>{word}</span>" in row
    assert "5 min. ago" in row
    assert ("release" in row and "abababababababab" in row) is bool(signer)
    assert ("What was found." in row) is (verdict != "pass")
