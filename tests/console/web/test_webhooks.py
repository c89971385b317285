"""Webhooks on their pages: make one, test it, change it, renew its secret, switch it off, deliver again, delete it."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from console.live.fragments import fragments_of
from console.live.topics import authorise
from console.web.forms.editing import seen_text
from console.web.forms.webhooks import webhook_facts
from registry.models import Webhook
from registry.services.webhook_deliveries import Outcome, delivery_claim, delivery_finish
from tests.console.conftest import Cast
from tests.console.web.conftest import Browse

LIST = "/settings/webhooks/"
FORM = {
    "name": "chat",
    "url": "https://hooks.example.com/T0/path-secret",
    "events": "version.*, approval.request",
    "format": "slack",
}


@pytest.fixture
def hook(cast: Cast, browse: Browse) -> Webhook:
    browse("alice").post(LIST, FORM)
    return Webhook.objects.get()


def act(client: Any, hook: Webhook, what: str, **extra: str) -> Any:
    hook.refresh_from_db()
    seen = seen_text(webhook_facts(hook))
    return client.post(f"{LIST}{hook.pk}/act/", {"act": what, "seen": seen, **extra})


def test_the_secret_is_shown_once(cast: Cast, browse: Browse) -> None:
    client = browse("alice")
    answer = client.post(LIST, FORM)
    assert answer.status_code == 200 and "whsec_" in answer.text and answer["Cache-Control"] == "no-store"
    hook = Webhook.objects.get()
    assert (hook.events, hook.format, hook.project) == (["approval.request", "version.*"], "slack", cast.project)
    for path in (LIST, f"{LIST}{hook.pk}/"):
        assert "whsec_" not in client.get(path).text and "path-secret" not in client.get(path).text
        assert "https://hooks.example.com" in client.get(path).text


def test_what_is_wrong_is_said_at_its_field_and_nothing_typed_is_lost(cast: Cast, browse: Browse) -> None:
    answer = browse("alice").post(LIST, {**FORM, "url": "https://10.0.0.1/x"})
    assert answer.status_code == 422
    assert "not public" in answer.text and 'value="chat"' in answer.text
    answer = browse("alice").post(LIST, {**FORM, "events": "nothing.here"})
    assert "nothing.here" in answer.text and not Webhook.objects.exists()


def test_others_read_why_not(cast: Cast, browse: Browse, hook: Webhook) -> None:
    for name in ("bob", "vera"):
        page = browse(name).get(LIST).text
        assert "admin" in page and "webhook-create" not in page and "hooks.example.com" not in page
        assert browse(name).get(f"{LIST}{hook.pk}/").status_code == 404
        assert act(browse(name), hook, "delete").status_code == 404
        assert browse(name).post(LIST, {**FORM, "name": "own"}).status_code == 422
    assert Webhook.objects.count() == 1


def test_a_site_webhook(cast: Cast, browse: Browse) -> None:
    answer = browse("alice").post(LIST, {**FORM, "events": "node.*", "of_site": "on"})
    assert "whsec_" in answer.text and Webhook.objects.get().project is None


def test_test_replay_switch_rotate_and_delete(cast: Cast, browse: Browse, hook: Webhook) -> None:
    client = browse("alice")
    assert act(client, hook, "test").status_code == 302
    claimed = delivery_claim(hook.pk, "worker", timezone.now())
    assert claimed is not None
    refused = Outcome(500, 0.2, error="It answered 500.", answer="<b>oops")
    delivery_finish(claimed, refused, now=timezone.now(), is_last=True)
    listed = client.get(f"{LIST}{hook.pk}/").text
    assert "It answered 500." in listed and "webhook.test" in listed
    address = f"{LIST}{hook.pk}/deliveries/{claimed.delivery.pk}/"
    read = client.get(address).text
    assert address in listed and "&lt;b&gt;oops" in read and "It answered 500." in read
    assert browse("bob").get(address).status_code == 404
    assert act(client, hook, "replay", delivery=str(claimed.delivery.pk)).status_code == 302
    assert hook.deliveries.count() == 2
    assert act(client, hook, "replay", delivery="nonsense").status_code == 404
    assert "whsec_" in act(client, hook, "rotate").text
    assert act(client, hook, "off").status_code == 302
    assert 'data-testid="webhook-off"' in client.get(f"{LIST}{hook.pk}/").text
    assert act(client, hook, "on").status_code == 302
    assert act(client, hook, "fly").status_code == 404
    assert act(client, hook, "delete").status_code == 302
    assert not Webhook.objects.exists()


def test_an_empty_address_stays(cast: Cast, browse: Browse, hook: Webhook) -> None:
    sealed = hook.url_sealed
    form = {**FORM, "name": "renamed", "url": "", "seen": seen_text(webhook_facts(hook))}
    assert browse("alice").post(f"{LIST}{hook.pk}/", form).status_code == 302
    hook.refresh_from_db()
    assert (hook.name, hook.url_sealed) == ("renamed", sealed)
    moved = {**FORM, "url": "https://other.example.com/x", "seen": seen_text(webhook_facts(hook))}
    browse("alice").post(f"{LIST}{hook.pk}/", moved)
    hook.refresh_from_db()
    assert hook.origin == "https://other.example.com"


def test_its_page_is_live_for_those_who_manage_it(cast: Cast, browse: Browse, hook: Webhook) -> None:
    topic = f"webhook:{hook.pk}"
    assert f'data-topics="{topic}"' in browse("alice").get(f"{LIST}{hook.pk}/").text
    assert authorise(cast.actor("alice"), [topic]) == {topic: "admin"}
    assert authorise(cast.actor("bob"), [topic]) == {}
    act(browse("alice"), hook, "test")
    _id, [fragment] = fragments_of(topic)
    html = fragment.renderer(str(hook.pk), "admin")
    assert "webhook.test" in html and f'id="webhook-live-{hook.pk}"' in html and "<form" not in html
    hook.delete()
    assert fragment.renderer(_id, "admin") == ""
