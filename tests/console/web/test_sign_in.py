"""Signing in with a second factor, confirming who one is, sessions, and new passwords by links."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.usersessions.models import UserSession
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from registry.models import ApiToken, AuditEvent, User
from registry.services import sessions, sign_ins
from tests.console.conftest import PASSWORD, Cast, signed_in
from tests.console.web.conftest import Browse

SECRET = "JBSWY3DPEHPK3PXP"
SECURITY = "/settings/security/"


@pytest.fixture(autouse=True)
def _fresh_counts() -> None:
    cache.clear()


def code_of(secret: str) -> str:
    """Return what an authenticator app shows now."""
    counters = list(yield_hotp_counters_from_time())
    return str(format_hotp_value(hotp_value(secret, counters[len(counters) // 2])))


def give_app(user: User) -> None:
    TOTP.activate(user, SECRET)


def sign_in(name: str = "bob", password: str = PASSWORD, client: Client | None = None) -> tuple[Client, Any]:
    client = client or Client()
    return client, client.post("/login/", {"login": name, "password": password})


def actions(*wanted: str) -> list[str]:
    return list(AuditEvent.objects.filter(action__in=wanted).order_by("created_at").values_list("action", flat=True))


def age(client: Client) -> None:
    """Let the sign-in of a browser be an hour old."""
    session = client.session
    records = [{**one, "at": time.time() - 3600} for one in session[AUTHENTICATION_METHODS_SESSION_KEY]]
    session[AUTHENTICATION_METHODS_SESSION_KEY] = records
    session.save()


def test_signing_in_and_out_is_recorded(cast: Cast) -> None:
    client, answer = sign_in()
    assert (answer.status_code, answer["Location"]) == (302, "/")
    client.post("/logout/")
    assert client.get("/").status_code == 302
    event = AuditEvent.objects.get(action="user.sign_in")
    assert (event.actor_name, event.after, event.ip) == ("bob", {"methods": ["password"]}, "127.0.0.1")
    assert actions("user.sign_in", "user.sign_out") == ["user.sign_in", "user.sign_out"]


def test_a_failure_is_recorded_without_what_was_typed(cast: Cast) -> None:
    sign_in(password="wrong")
    sign_in(name="my-own-password")
    events = list(AuditEvent.objects.filter(action="user.sign_in_failed").order_by("created_at"))
    assert [(one.object_label, one.after["known"]) for one in events] == [("bob", True), ("unknown account", False)]
    assert "my-own-password" not in str([(one.after, one.object_label, one.actor_name) for one in events])


def test_nobody_signs_up_and_unwanted_addresses_are_not_routed(cast: Cast) -> None:
    for path in ("/signup/", "/login/signup/", "/accounts/signup/", "/email/", "/accounts/login/", "/login/code/"):
        assert Client().get(path).status_code == 404, path
    assert Client().get("/logout/").status_code == 405


def test_a_second_factor_is_asked_for_after_the_password(cast: Cast) -> None:
    give_app(cast.bob)
    client, answer = sign_in()
    assert answer["Location"] == "/login/factor/"
    assert client.get("/").status_code == 302, "the password alone lets nobody in"
    refused = client.post("/login/factor/", {"code": "000000"})
    assert refused.status_code == 200
    code = code_of(SECRET)
    assert client.post("/login/factor/", {"code": code})["Location"] == "/"
    assert client.get("/").status_code == 200
    again, _answer = sign_in()
    assert again.post("/login/factor/", {"code": code}).status_code == 200, "a code works once"
    assert AuditEvent.objects.get(action="user.sign_in").after == {"methods": ["password", "mfa"]}
    assert "user.sign_in_failed" in actions("user.sign_in_failed")


def test_codes_are_not_guessed_for_ever(cast: Cast) -> None:
    give_app(cast.bob)
    client, _answer = sign_in()
    for _ in range(10):
        client.post("/login/factor/", {"code": "000000"})
    refused = client.post("/login/factor/", {"code": code_of(SECRET)})
    assert refused.status_code == 200
    assert client.get("/").status_code == 302


def test_adding_an_app_shows_recovery_codes_once_and_each_works_once(
    cast: Cast, browse: Browse, django_capture_on_commit_callbacks: Any
) -> None:
    client = browse("bob")
    page = client.get(f"{SECURITY}app/")
    secret = re.search(r'id="app-secret"[^>]*>([A-Z2-7]+)<', page.text)
    assert secret is not None
    assert page["Cache-Control"] == "no-store"
    assert client.post(f"{SECURITY}app/", {"code": "12"}).status_code == 200
    with django_capture_on_commit_callbacks(execute=True):
        added = client.post(f"{SECURITY}app/", {"code": code_of(secret[1])})
    assert added["Location"] == f"{SECURITY}codes/"
    codes = re.search(r'id="recovery-codes"[^>]*>([^<]+)<', client.get(added["Location"]).text)
    assert codes is not None
    assert 'id="recovery-codes"' not in client.get(added["Location"]).text
    stored = Authenticator.objects.get(user=cast.bob, type="totp")
    assert secret[1] not in str(stored.data), "sealed at rest"
    added_kinds = AuditEvent.objects.filter(action="user.second_factor_added").values_list("after__kind", flat=True)
    assert sorted(added_kinds) == ["recovery_codes", "totp"]
    code = codes[1].split()[0]
    for expected in (302, 200):
        lost, _answer = sign_in()
        assert lost.post("/login/factor/", {"code": code}).status_code == expected


def test_the_last_factor_stays_while_the_site_needs_one(cast: Cast, browse: Browse, settings: Any) -> None:
    settings.MFA_REQUIRED = "all"
    give_app(cast.bob)
    client = browse("bob")
    page = client.post(f"{SECURITY}app/remove/")
    assert page.status_code == 200
    assert Authenticator.objects.filter(user=cast.bob).exists()
    settings.MFA_REQUIRED = "admins"
    assert client.post(f"{SECURITY}app/remove/")["Location"] == SECURITY
    assert not Authenticator.objects.filter(user=cast.bob).exists()


@pytest.mark.parametrize(("policy", "who", "free"), [
    ("off", "alice", True), ("admins", "alice", False), ("admins", "bob", True), ("all", "bob", False),
])  # fmt: skip
def test_who_needs_a_second_factor_gets_one_first(
    cast: Cast, browse: Browse, settings: Any, policy: str, who: str, free: bool
) -> None:
    settings.MFA_REQUIRED = policy
    client = browse(who)
    answer = client.get("/fleet/")
    api = client.get("/api/v1/me/")
    if free:
        assert (answer.status_code, api.status_code) == (200, 200)
        return
    assert (answer.status_code, answer["Location"]) == (302, SECURITY)
    assert (api.status_code, api.json()["code"]) == (403, "second_factor_required")
    assert 'data-testid="factor-missing"' in client.get(SECURITY).text
    assert client.get(f"{SECURITY}app/").status_code == 200
    give_app(getattr(cast, who))
    assert client.get("/fleet/").status_code == 200


def test_a_sensitive_act_asks_again_and_then_goes_on(cast: Cast, browse: Browse) -> None:
    client = browse("bob")
    age(client)
    form = {"name": "ci", "scope": "read", "project": "", "lifetime": "30"}
    asked = client.post("/settings/tokens/", form)
    assert asked["Location"].startswith("/login/confirm/?next=")
    assert not ApiToken.objects.exists()
    assert client.post(asked["Location"], {"password": "wrong"}).status_code == 200
    done = client.post(asked["Location"], {"password": PASSWORD})
    assert 'data-testid="token-created"' in done.text
    assert ApiToken.objects.get().name == "ci"


def test_a_form_with_a_password_is_not_kept_while_it_asks_again(cast: Cast, browse: Browse) -> None:
    client = browse("alice")
    age(client)
    form = {"form": "create", "username": "dora", "password": "a very first secret", "role": "viewer"}
    asked = client.post("/settings/members/", {**form, "site_role": "none"})
    assert asked["Location"].startswith("/login/confirm/?next=")
    assert "a very first secret" not in str(dict(client.session))
    assert not User.objects.filter(username="dora").exists()


def test_the_session_of_a_browser_makes_no_token_by_the_api_without_asking_again(cast: Cast, browse: Browse) -> None:
    client = browse("bob")
    body = {"name": "x", "scopes": ["read"]}
    age(client)
    refused = client.post("/api/v1/api-keys/", body, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "reauthentication_required")
    fresh = signed_in(client, cast.bob)
    assert fresh.post("/api/v1/api-keys/", body, content_type="application/json").status_code == 201


def test_sessions_are_listed_and_ended(cast: Cast) -> None:
    here, _ = sign_in()
    there, _ = sign_in(client=Client(headers={"User-Agent": "Mozilla/5.0 (X11; Linux) Firefox/140.0"}))
    page = here.get(SECURITY).text
    assert "Firefox on Linux" in page
    assert page.count("this device") == 1
    other = UserSession.objects.get(session_key=there.session.session_key)
    stranger, _ = sign_in("vera")
    assert stranger.post(f"{SECURITY}sessions/", {"session": other.pk}).status_code == 404
    assert here.post(f"{SECURITY}sessions/", {"session": other.pk}).status_code == 302
    assert there.get("/").status_code == 302
    assert here.get("/").status_code == 200
    third, _ = sign_in()
    here.post(f"{SECURITY}sessions/", {"session": "others"})
    assert third.get("/").status_code == 302
    assert actions("session.end") == ["session.end"] * 2


@pytest.mark.parametrize(("began", "seen", "lives"), [(1, 1, True), (400, 1, False), (100, 80, False)])
def test_sessions_end_by_themselves(cast: Cast, began: int, seen: int, lives: bool) -> None:
    client, _ = sign_in()
    now = timezone.now()
    UserSession.objects.update(created_at=now - timedelta(hours=began), last_seen_at=now - timedelta(hours=seen))
    cache.clear()
    assert (client.get("/").status_code == 200) is lives
    assert UserSession.objects.exists() is lives


def test_a_new_password_ends_other_sessions_and_keeps_this_one_listed(cast: Cast) -> None:
    here, _ = sign_in()
    there, _ = sign_in()
    new = "another long sentence"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert here.post("/settings/password/", form).status_code == 302
    assert there.get("/").status_code == 302
    assert here.get(SECURITY).text.count("this device") == 1


def test_a_mailed_link_sets_a_password_once(cast: Cast, settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example.com"
    User.objects.filter(pk=cast.bob.pk).update(email="bob@example.com")
    there, _ = sign_in()
    for address in ("bob@example.com", "nobody@example.com"):
        assert Client().post("/login/forgot/", {"email": address})["Location"] == "/login/forgot/sent/"
    assert [message.to for message in mail.outbox] == [["bob@example.com"]]
    link = re.search(r"(https?://\S+)", mail.outbox[0].body)
    assert link is not None and link[1].startswith(settings.PUBLIC_URL)
    path = link[1].removeprefix(settings.PUBLIC_URL)
    client = Client()
    form = client.get(path)["Location"]
    weak = client.post(form, {"password1": "short", "password2": "short"})
    assert weak.status_code == 200
    new = "another long sentence"
    assert client.post(form, {"password1": new, "password2": new}).status_code == 302
    assert there.get("/").status_code == 302
    assert sign_in(password=new)[1].status_code == 302
    assert 'data-testid="link-dead"' in Client().get(path).text
    assert actions("user.set_password") == ["user.set_password"]


def test_without_mail_nobody_is_promised_any(cast: Cast) -> None:
    assert Client().get("/login/forgot/").status_code == 404
    assert "administrator of the site can make a link" in Client().get("/login/").text


def test_an_administrator_takes_lost_factors_away(cast: Cast) -> None:
    give_app(cast.bob)
    client = signed_in(Client(), cast.bob)
    assert client.get("/").status_code == 200
    sign_ins.second_factors_reset(user=cast.bob, actor=cast.actor("alice"))
    assert not Authenticator.objects.filter(user=cast.bob).exists()
    assert client.get("/").status_code == 302
    assert sessions.sessions_end(user=cast.bob, actor=cast.actor("alice")) == 0
