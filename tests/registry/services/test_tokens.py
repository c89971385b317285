"""API keys: two secrets for a while, only from where they may be used, told of before they end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.actors import Actor
from registry.errors import Conflict, PermissionDenied, ValidationFailed
from registry.models import ApiToken, AuditEvent, User, Webhook, WebhookEvent
from registry.services import service_accounts, tokens
from registry.services.sealing import seal


def make(world: Any, **given: Any) -> tuple[ApiToken, str]:
    actor = world.actor(world.carol)
    return tokens.token_create(**{"owner": world.carol, "name": "ci", "scopes": ["write"], "actor": actor} | given)


def test_after_a_rotation_both_secrets_work_until_the_old_one_ends(world: Any) -> None:
    token, old = make(world)
    rotated, new = tokens.token_rotate(token=token, overlap=timedelta(hours=2), actor=world.actor(world.carol))
    assert old.split("_")[1] == rotated.previous_public_id and new.split("_")[1] == rotated.public_id
    now = timezone.now()
    assert tokens.token_authenticate(new) == tokens.token_authenticate(old) == token
    token.refresh_from_db()
    assert token.previous_used_at is not None
    assert tokens.token_authenticate(new, now=now + timedelta(hours=3)) == token
    assert tokens.token_authenticate(old, now=now + timedelta(hours=3)) is None
    # The secret of one half does not open the other.
    mixed = f"flo_{rotated.public_id}_{old.split('_')[2]}"
    assert tokens.token_authenticate(mixed) is None


def test_a_second_rotation_ends_the_oldest_secret_at_once(world: Any) -> None:
    actor = world.actor(world.carol)
    token, first = make(world)
    _token, second = tokens.token_rotate(token=token, actor=actor)
    _token, third = tokens.token_rotate(token=token, overlap=timedelta(), actor=actor)
    assert [tokens.token_authenticate(text) for text in (first, second, third)] == [None, None, token]
    tokens.token_revoke(token=token, actor=actor)
    assert tokens.token_authenticate(third) is None
    with pytest.raises(Conflict):
        tokens.token_rotate(token=token, actor=actor)


def test_neither_the_table_nor_the_log_holds_a_secret(world: Any) -> None:
    token, old = make(world)
    _token, new = tokens.token_rotate(token=token, actor=world.actor(world.carol))
    kept = str(list(ApiToken.objects.values())) + str(list(AuditEvent.objects.values()))
    for text in (old, new):
        assert text.split("_")[2] not in kept
    assert list(AuditEvent.objects.filter(object_id=str(token.pk)).values_list("action", flat=True).order_by("id")) == [
        "token.create",
        "token.rotate",
    ]


def test_a_key_works_only_from_its_networks(world: Any) -> None:
    token, text = make(world, allowed_networks=["10.1.0.0/16"])
    with pytest.raises(PermissionDenied, match=r"192\.0\.2\.1"):
        tokens.token_authenticate(text, ip="192.0.2.1")
    with pytest.raises(PermissionDenied):
        tokens.token_authenticate(text, ip=None)
    token.refresh_from_db()
    assert token.last_used_at is None
    assert tokens.token_authenticate(text, ip="10.1.9.9") == token
    token.refresh_from_db()
    assert token.last_used_ip == "10.1.9.9"
    assert tokens.token_authenticate(text[:-1] + "~", ip="192.0.2.1") is None
    with pytest.raises(ValidationFailed):
        make(world, allowed_networks=["10.1.2.3/8"])
    with pytest.raises(ValidationFailed):
        make(world, allowed_networks=["10.0.0.1"] * 21)


def test_where_keys_must_end_none_is_made_or_prolonged_without(world: Any, settings: Any) -> None:
    actor = world.actor(world.carol)
    token, _text = make(world)
    settings.TOKEN_MAX_DAYS = 30
    for refused in (
        lambda: make(world),
        lambda: make(world, expires_at=timezone.now() + timedelta(days=40)),
        lambda: tokens.token_rotate(token=token, actor=actor),
        lambda: (
            tokens.token_update(token=token, expires_at=None, name="x", actor=actor)
            and tokens.token_update(token=token, expires_at=timezone.now() + timedelta(days=99), actor=actor)
        ),
    ):
        with pytest.raises(ValidationFailed):
            refused()
    ends = timezone.now() + timedelta(days=20)
    rotated, _text = tokens.token_rotate(token=token, expires_at=ends, actor=actor)
    assert rotated.expires_at == ends


def test_an_end_is_told_once_to_the_log_and_to_webhooks(world: Any) -> None:
    now = timezone.now()
    Webhook.objects.create(project=world.project, name="chat", events=["project_token.*"], url_sealed=seal("https://x"))
    soon, _text = make(world, project=world.project, expires_at=now + timedelta(days=40))
    make(world, expires_at=now + timedelta(days=80))
    make(world)
    gone, _text = make(world, expires_at=now + timedelta(days=40))
    tokens.token_revoke(token=gone, actor=world.actor(world.carol))
    assert tokens.tokens_tell_expiry(now + timedelta(days=30)) == 0
    assert tokens.tokens_tell_expiry(now + timedelta(days=34)) == 1
    assert tokens.tokens_tell_expiry(now + timedelta(days=34, minutes=5)) == 0
    [event] = WebhookEvent.objects.filter(type="project_token.expires_soon")
    assert event.payload["data"]["object"]["id"] == str(soon.pk)
    tokens.token_update(token=soon, expires_at=now + timedelta(days=90), actor=world.actor(world.carol))
    assert tokens.tokens_tell_expiry(now + timedelta(days=89)) == 1


def test_people_manage_their_own_keys_and_administrators_those_of_machines(world: Any) -> None:
    carols, _text = make(world)
    robots, _text = make(world, owner=world.robot, actor=world.actor(world.alice))
    for token, who in ((carols, world.alice), (carols, world.bob), (robots, world.carol)):
        with pytest.raises(PermissionDenied):
            tokens.token_rotate(token=token, actor=world.actor(who))
        with pytest.raises(PermissionDenied):
            tokens.token_update(token=token, name="mine", actor=world.actor(who))
    assert tokens.token_rotate(token=robots, actor=world.actor(world.alice))
    # A leaked key of anybody's can be stopped by a site administrator.
    tokens.token_revoke(token=carols, actor=world.actor(world.alice))
    assert ApiToken.objects.get(pk=carols.pk).revoked_at is not None


def test_a_deleted_service_account_keeps_only_its_name(world: Any) -> None:
    alice = world.actor(world.alice)
    account = service_accounts.service_account_create(username="ci-swift", actor=alice)
    _token, text = make(world, owner=account, actor=alice)
    service_accounts.service_account_set_active(account=account, is_active=False, actor=alice)
    assert tokens.token_authenticate(text) is None
    service_accounts.service_account_set_active(account=account, is_active=True, actor=alice)
    assert tokens.token_authenticate(text) is not None
    service_accounts.service_account_delete(account=account, actor=alice)
    account.refresh_from_db()
    assert not account.is_active and account.deleted_at is not None and not account.memberships.exists()
    assert tokens.token_authenticate(text) is None
    with pytest.raises(ValidationFailed):
        service_accounts.service_account_create(username="ci-swift", actor=alice)
    with pytest.raises(PermissionDenied):
        service_accounts.service_account_delete(account=world.robot, actor=world.actor(world.carol))
    # The robot is an administrator, and so is Alice: somebody is left.
    service_accounts.service_account_delete(account=world.robot, actor=alice)
    assert not User.objects.get(pk=world.robot.pk).memberships.exists()


def test_a_service_account_that_got_a_password_is_still_no_person(world: Any, client: Any) -> None:
    world.robot.set_password("correct horse battery")
    world.robot.save()
    assert not client.login(username="robot", password="correct horse battery")
    client.force_login(world.robot)
    assert client.get("/").status_code == 302
    assert client.get("/api/v1/me/").status_code in (401, 403)


def test_tokens_of_jobs_are_forgotten_a_week_after_their_end(world: Any) -> None:
    now = timezone.now()
    ended = {"expires_at": now - timedelta(days=8)}
    job, _text = tokens.job_token_create(
        owner=world.robot, project=world.project, name="j", actor_name="ci: x", scopes=["read"], rule=None, **ended
    )
    kept, _text = make(world)
    ApiToken.objects.filter(pk=kept.pk).update(**ended)
    assert tokens.job_tokens_purge(now) == 1
    assert list(ApiToken.objects.all()) == [kept]
    assert Actor.person(world.robot, token=job).name == "ci: x"
