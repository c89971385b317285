"""Two people edit one thing: the second sees both values, loses nothing that was typed, and saves knowingly or not."""

from __future__ import annotations

import html
import re

import pytest

from registry.models import Membership, Project, Webhook
from registry.services import accounts, webhooks
from registry.services.code import project_code_formats
from tests.console.conftest import Cast
from tests.console.web.conftest import Browse


@pytest.fixture
def hook(cast: Cast) -> Webhook:
    url = "https://hooks.example.com/x"
    return webhooks.webhook_create(project=cast.project, name="chat", url=url, events=["*"], actor=cast.actor("alice"))[
        0
    ]


def seen_in(text: str) -> str:
    """Return the hidden field of the first form that carries one."""
    tags = re.findall(r'<input[^>]*name="seen"[^>]*>', text)
    found = re.search(r'value="([^"]*)"', tags[0])
    assert found is not None
    return html.unescape(found[1])


def test_a_form_shows_both_values_and_saves_the_second_time(cast: Cast, browse: Browse, hook: Webhook) -> None:
    alice, address = browse("alice"), f"/settings/webhooks/{hook.pk}/"
    typed = {"name": "mine", "url": "", "events": "version.ready", "format": "slack"}
    seen = seen_in(alice.get(address).text)
    webhooks.webhook_update(webhook=hook, name="theirs", actor=cast.actor("alice"))

    answer = alice.post(address, {**typed, "seen": seen})
    text = html.unescape(answer.text)
    assert answer.status_code == 422
    assert "Somebody changed it" in text and "Now it says: theirs" in text
    assert 'value="mine"' in text and 'value="version.ready"' in text
    assert text.count("Now it says") == 1
    hook.refresh_from_db()
    assert hook.name == "theirs"

    assert alice.post(address, {**typed, "seen": seen_in(answer.text)}).status_code == 302
    hook.refresh_from_db()
    assert (hook.name, hook.events, hook.format) == ("mine", ["version.ready"], "slack")


@pytest.mark.parametrize("seen", ["", "{", "[1]", "[" * 5000])
def test_a_form_without_what_was_seen_changes_nothing(cast: Cast, browse: Browse, hook: Webhook, seen: str) -> None:
    form = {"name": "mine", "url": "", "events": "*", "format": "slack", "seen": seen}
    answer = browse("alice").post(f"/settings/webhooks/{hook.pk}/", form)
    assert answer.status_code == 422 and 'value="mine"' in answer.text
    hook.refresh_from_db()
    assert hook.name == "chat"


def test_a_webhook_that_was_changed_is_not_deleted_unseen(cast: Cast, browse: Browse, hook: Webhook) -> None:
    alice, address = browse("alice"), f"/settings/webhooks/{hook.pk}/"
    seen = seen_in(alice.get(address).text)
    webhooks.webhook_update(webhook=hook, is_enabled=False, actor=cast.actor("alice"))
    assert "Somebody changed" in alice.post(f"{address}act/", {"act": "delete", "seen": seen}, follow=True).text
    assert Webhook.objects.exists()
    alice.post(f"{address}act/", {"act": "delete", "seen": seen_in(alice.get(address).text)})
    assert not Webhook.objects.exists()


def test_a_role_that_was_changed_meanwhile_stays(cast: Cast, browse: Browse) -> None:
    accounts.membership_set(project=cast.project, user=cast.vera, role="approver", actor=cast.actor("alice"))
    alice = browse("alice")
    asked = {"form": "role", "user": "vera", "role": "operator", "seen": "viewer"}
    text = alice.post("/settings/members/", asked, follow=True).text
    assert "Approver" in text and "You wanted" in text and "Operator" in text
    assert (
        "choose again" in alice.post("/settings/members/remove/", {"user": "vera", "seen": "viewer"}, follow=True).text
    )
    assert Membership.objects.get(user=cast.vera).role == "approver"
    alice.post("/settings/members/", {**asked, "seen": "approver"})
    assert Membership.objects.get(user=cast.vera).role == "operator"
    alice.post("/settings/members/remove/", {"user": "vera", "seen": "operator"})
    assert not Membership.objects.filter(user=cast.vera).exists()


def test_a_policy_that_was_changed_meanwhile_stays(cast: Cast, browse: Browse) -> None:
    project_code_formats(project=cast.project, code_formats="forbid", actor=cast.actor("alice"))
    form = {"project": "wren", "code_formats": "allow", "seen": "allow"}
    assert "choose again" in browse("alice").post("/settings/projects/", form, follow=True).text
    assert Project.objects.get(slug="wren").code_formats == "forbid"
