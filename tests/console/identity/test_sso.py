"""Signing in at a real OpenID Connect provider on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.cache import cache
from django.test import Client

from registry.models import AuditEvent, Membership, Project, SsoProvider, User
from registry.services import accounts, sso
from tests.console.conftest import Cast, signed_in
from tests.console.identity.oidc_provider import CLIENT_ID, CLIENT_SECRET, Oidc

START = "/login/sso/corp/"


@pytest.fixture
def oidc(settings: Any) -> Iterator[Oidc]:
    cache.clear()
    settings.SSO_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    claims = {"sub": "u-1", "email": "dora@corp.example", "preferred_username": "dora@corp.example", "groups": ["ml"]}
    provider = Oidc(claims).start()
    yield provider
    provider.stop()


@pytest.fixture
def corp(cast: Cast, oidc: Oidc) -> SsoProvider:
    return sso.sso_provider_create(
        slug="corp",
        name="Corp",
        issuer=oidc.issuer,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        sign_up="all",
        actor=cast.actor("alice"),
    )


def way_there(client: Client, **form: str) -> str:
    """Return the address to which the console leads."""
    left = client.post(START, form)
    assert left.status_code == 200, left.content
    return str(left["Refresh"]).removeprefix("0; url=")


def sign_in(client: Client | None = None, **form: str) -> tuple[Client, Any]:
    """Go to the provider and come back."""
    client = client or Client()
    back = requests.get(way_there(client, **form), allow_redirects=False, timeout=30).headers["Location"]
    return client, client.get(back.partition("7070")[2])


def test_a_newcomer_gets_an_account_without_a_password(cast: Cast, corp: SsoProvider) -> None:
    client, answer = sign_in()
    assert (answer.status_code, answer["Location"]) == (302, "/")
    user = User.objects.get(username="dora")
    assert (user.email, user.site_role, user.has_usable_password()) == ("dora@corp.example", "none", False)
    assert client.get("/").status_code == 200
    link = SocialAccount.objects.get(user=user)
    assert (link.provider, link.uid) == ("corp", "u-1")
    event = AuditEvent.objects.get(action="user.sign_in")
    assert event.after == {"methods": ["socialaccount"]}
    again, _answer = sign_in()
    assert User.objects.filter(username__startswith="dora").count() == 1
    assert again.get("/").status_code == 200


def test_an_account_is_never_linked_by_its_address(cast: Cast, corp: SsoProvider) -> None:
    User.objects.filter(pk=cast.bob.pk).update(email="Dora@corp.example")
    client, answer = sign_in()
    assert answer.status_code == 403
    assert "connect Corp under Settings" in answer.text
    assert client.get("/").status_code == 302
    assert not SocialAccount.objects.exists()
    bob = signed_in(Client(), cast.bob)
    _client, connected = sign_in(bob, process="connect")
    assert connected["Location"] == "/settings/security/"
    assert SocialAccount.objects.get().user == cast.bob
    assert "user.identity_linked" in AuditEvent.objects.values_list("action", flat=True)
    fresh, answer = sign_in()
    assert answer.status_code == 302
    assert fresh.get("/settings/security/").text.count("Corp") > 0


def test_connecting_asks_again_who_is_there(cast: Cast, corp: SsoProvider) -> None:
    bob = signed_in(Client(), cast.bob)
    session = bob.session
    session["account_authentication_methods"] = [{"method": "password", "at": time.time() - 3600}]
    session.save()
    _client, answer = sign_in(bob, process="connect")
    assert answer["Location"].startswith("/login/confirm/")
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize(("policy", "groups", "status"), [
    ("off", ["ml"], 403), ("mapped", [], 403), ("mapped", ["ml"], 302), ("all", [], 302),
])  # fmt: skip
def test_who_gets_an_account(
    cast: Cast, corp: SsoProvider, oidc: Oidc, policy: str, groups: list[str], status: int
) -> None:
    alice = cast.actor("alice")
    sso.group_mapping_create(provider=corp, group="ml", project=cast.project, role="viewer", actor=alice)
    sso.sso_provider_update(provider=corp, sign_up=policy, actor=alice)
    oidc.claims["groups"] = groups
    assert sign_in()[1].status_code == status
    assert User.objects.filter(username="dora").exists() is (status == 302)


def test_groups_give_and_take_only_what_they_gave(cast: Cast, corp: SsoProvider, oidc: Oidc) -> None:
    alice, elsewhere = cast.actor("alice"), Project.objects.get(slug="elsewhere")
    for group, project, role in (
        ("ml", cast.project, "publisher"),
        ("leads", cast.project, "admin"),
        ("leads", elsewhere, "viewer"),
        ("ops", None, "operator"),
    ):
        sso.group_mapping_create(provider=corp, group=group, project=project, role=role, actor=alice)
    oidc.claims["groups"] = ["ml", "leads", "ops"]
    sign_in()
    dora = User.objects.get(username="dora")

    def roles() -> dict[str, str]:
        return dict(Membership.objects.filter(user=dora).values_list("project__slug", "role"))

    assert (roles(), dora.site_role) == ({"wren": "admin", "elsewhere": "viewer"}, "operator")
    accounts.membership_set(project=elsewhere, user=dora, role="approver", actor=cast.actor("charlie"))
    oidc.claims["groups"] = ["ml"]
    sign_in()
    dora.refresh_from_db()
    assert (roles(), dora.site_role) == ({"wren": "publisher", "elsewhere": "approver"}, "none")
    oidc.claims["groups"] = []
    sign_in()
    assert roles() == {"elsewhere": "approver"}
    recorded = AuditEvent.objects.filter(action="membership.remove").get()
    assert recorded.actor_name == "single sign-on: corp"


@pytest.mark.parametrize("spoil", ["signature", "issuer", "audience", "expired", "subject", "description"])
def test_what_does_not_fit_lets_nobody_in(cast: Cast, corp: SsoProvider, oidc: Oidc, spoil: str) -> None:
    client = Client()
    there = way_there(client)
    match spoil:
        case "signature":
            oidc.wrong_key = rsa.generate_private_key(65537, 2048)
        case "issuer":
            oidc.spoiled["iss"] = "https://other.example"
        case "audience":
            oidc.spoiled["aud"] = "another client"
        case "expired":
            oidc.spoiled["exp"] = 1_700_000_000
        case "subject":
            oidc.userinfo["sub"] = "somebody else"
        case "description":
            oidc.described_issuer = "https://other.example"
    back = requests.get(there, allow_redirects=False, timeout=30).headers["Location"]
    answer = client.get(back.partition("7070")[2])
    assert answer.status_code == 401, answer.content
    assert "did not work" in answer.text
    assert not User.objects.filter(username="dora").exists()
    assert AuditEvent.objects.filter(action="user.sign_in_failed", after__method="sso").exists()


def test_an_answer_that_nobody_asked_for_is_refused(cast: Cast, corp: SsoProvider) -> None:
    answer = Client().get(f"{START}callback/?code=x&state=y")
    assert answer.status_code in {401, 403}
    assert Client().get(START).status_code == 405
    assert Client().post("/login/sso/unknown/").status_code == 404


def test_a_blocked_account_stays_outside(cast: Cast, corp: SsoProvider) -> None:
    sign_in()
    User.objects.filter(username="dora").update(is_active=False)
    client, answer = sign_in()
    assert "blocked" in answer.text
    assert client.get("/").status_code == 302


def test_private_addresses_are_called_only_when_allowed(cast: Cast, corp: SsoProvider, settings: Any) -> None:
    settings.SSO_ALLOWED_NETWORKS = []
    answer = Client().post(START)
    assert answer.status_code == 401
    settings.SSO_ALLOWED_NETWORKS = ["10.0.0.0/8"]
    assert Client().post(START).status_code == 401


def test_signing_out_ends_the_session_there_too(cast: Cast, corp: SsoProvider, oidc: Oidc) -> None:
    client, _answer = sign_in()
    left = client.post("/logout/")
    assert left["Refresh"].startswith(f"0; url={oidc.issuer}/logout?client_id={CLIENT_ID}")
    assert client.get("/").status_code == 302


def test_a_switched_off_provider_is_gone_and_a_deleted_one_forgets_its_accounts(cast: Cast, corp: SsoProvider) -> None:
    sign_in()
    assert 'data-testid="login-sso-corp"' in Client().get("/login/").text
    alice = cast.actor("alice")
    sso.sso_provider_update(provider=corp, is_enabled=False, actor=alice)
    assert Client().post(START).status_code == 404
    assert "login-sso-corp" not in Client().get("/login/").text
    sso.sso_provider_delete(provider=corp, actor=alice)
    assert not SocialAccount.objects.exists()
    assert CLIENT_SECRET not in str(list(AuditEvent.objects.values_list("before", "after")))
