"""Accounts, roles, providers and CI identities from a shell, against the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from flotilla.cli import main
from flotilla.sdk import Flotilla
from registry.models import AuditEvent, Membership, ScimGroup, SsoProvider, User
from tests.console.conftest import Cast, RunningConsole

Run = Callable[..., Any]


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice"),
        "FLOTILLA_PROJECT": "wren",
        "FLOTILLA_CONFIG_DIR": "/nonexistent",
    }

    def call(*arguments: str, status: int = 0, typed: str | None = None) -> Any:
        result = CliRunner().invoke(main, [*arguments], env=environment, input=typed)
        assert result.exit_code == status, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.output

    return call


def test_people_are_made_changed_blocked_and_let_in(run: Run, shared_cast: Cast, console: RunningConsole) -> None:
    said = ("--email", "dora@example.com", "--password-file", "-")
    assert run("people", "create", "dora", *said, typed="correct horse battery\n") == "Account dora is made.\n"
    assert User.objects.get(username="dora").check_password("correct horse battery")
    assert [row["username"] for row in run("people", "list", "--search", "DORA@", "--json")] == ["dora"]
    run("people", "change", "dora", "--username", "dora.d", "--site-role", "operator")
    assert "Say what to change" in run("people", "change", "dora.d", status=2)
    assert run("people", "show", "dora.d", "--json")["access"]["site_role"] == "operator"
    bob = shared_cast.token("bob")
    plan = run("people", "block", "bob", "--plan", "--json")
    assert plan["impact"]["tokens"] == 1 and User.objects.get(username="bob").is_active
    assert "1 API key\n" in run("people", "block", "bob")
    with console.client(bob) as client:
        assert client.get("/api/v1/me/").status_code == 401
        assert "bob" in run("people", "list", "--blocked") and "bob" not in run("people", "list", "--active")
        run("people", "let-in", "bob")
        assert client.get("/api/v1/me/").status_code == 401
    with console.client(shared_cast.token("bob")) as client:
        assert client.get("/api/v1/me/").status_code == 200
    assert "/login/new-password/" in run("people", "password-link", "bob")
    assert "no second factors" in run("people", "reset-second-factors", "bob")
    assert run("people", "sessions", "bob", "--json") == []
    assert run("people", "end-sessions", "bob", "--json") == {"ended": 0}
    assert "not_found" in run("people", "disconnect", "alice", "7", status=1)
    assert "not_found" in run("people", "show", "nobody", status=1)


def test_roles_in_the_project(run: Run, shared_cast: Cast) -> None:
    assert run("members", "set", "charlie", "approver") == "charlie is approver.\n"
    assert Membership.objects.get(user=shared_cast.charlie, project=shared_cast.project).role == "approver"
    assert ["charlie", "approver"] in [line.split() for line in run("members", "list").splitlines()]
    run("members", "remove", "charlie")
    assert [row["username"] for row in run("members", "list", "--json")] == ["alice", "bob", "vera"]


def test_service_accounts_live_and_end(run: Run, console: RunningConsole) -> None:
    run("service-accounts", "create", "ci")
    run("members", "set", "ci", "publisher")
    key = run("keys", "create", "ci", "--owner", "ci").strip()
    assert "publisher" in run("service-accounts", "show", "ci")
    with console.client(key) as client:
        assert client.get("/api/v1/me/").json()["is_service"]
        run("service-accounts", "disable", "ci")
        assert client.get("/api/v1/me/").status_code == 401
        assert run("service-accounts", "enable", "ci", "--json")["is_active"]
        assert client.get("/api/v1/me/").status_code == 200
    assert [row["username"] for row in run("service-accounts", "list", "--json")] == ["ci"]
    run("service-accounts", "delete", "ci")
    assert run("service-accounts", "list", "--json") == []


def test_providers_their_groups_and_tokens_for_provisioning(run: Run) -> None:
    said = ("--name", "Okta", "--issuer", "https://corp.okta.com", "--client-id", "x", "--secret-file", "-")
    assert "/login/sso/okta/callback/" in run("sso", "create", "okta", *said, typed="very secret\n")
    changed = run("sso", "change", "okta", "--off", "--sign-up", "mapped", "--json")
    assert (changed["is_enabled"], changed["sign_up"]) == (False, "mapped")
    assert "very secret" not in run("sso", "list", "--json") and "Okta" in run("sso", "list")
    assert run("sso", "map", "okta", "ml", "publisher", "--in", "wren") == "ml gives publisher in wren.\n"
    run("sso", "map", "okta", "ops", "operator")
    assert [(row["group"], row["project"]) for row in run("sso", "mappings", "okta", "--json")] == [
        ("ops", None),
        ("ml", "wren"),
    ]
    ScimGroup.objects.create(provider=SsoProvider.objects.get(), display_name="ml", external_id="8aa1")
    assert run("sso", "groups", "okta").splitlines()[1].split() == ["ml", "8aa1", "0"]
    run("sso", "unmap", "okta", "ops")
    assert "gives nothing on the site" in run("sso", "unmap", "okta", "ops", status=1)
    assert run("scim-tokens", "create", "corp", "--provider", "okta").startswith("scim_")
    assert "active" in run("scim-tokens", "list")
    run("scim-tokens", "revoke", "corp")
    assert "There is no token corp" in run("scim-tokens", "revoke", "corp", status=1)
    run("sso", "delete", "okta")
    assert not SsoProvider.objects.exists()
    assert "very secret" not in str([*AuditEvent.objects.values_list("before", "after")])


def test_jobs_of_ci_are_trusted_by_rules(run: Run, shared_cast: Cast) -> None:
    shared_cast.trust_rule()
    run("trust-rules", "delete", "push")
    said = ("--repository-id", "4711", "--owner-id", "99", "--account", "robot", "--scope", "write")
    assert "A rule needs --owner-id, --account, --scope" in run(
        "trust-rules", "create", "ship", "github", "--repository-id", "4711", status=2
    )
    assert "act as robot" in run("trust-rules", "create", "ship", "github", *said, "--repository", "octo/swift")
    changed = run("trust-rules", "change", "ship", "--ref", "refs/heads/main", "--minutes", "5", "--off", "--json")
    assert (changed["ref"], changed["lifetime_minutes"], changed["is_enabled"]) == ("refs/heads/main", 5, False)
    assert "octo/swift" in run("trust-rules", "list")
    assert run("issuers", "change", "github", "--max-age", "5", "--json")["max_age_minutes"] == 5
    assert "github" in run("issuers", "list") and "conflict" in run("issuers", "delete", "github", status=11)
    assert run("issuers", "read-keys", "github", "--json", status=1)["keys_problem"]
    run("trust-rules", "delete", "ship")
    run("issuers", "delete", "github")
    assert run("issuers", "list", "--json") == []


def test_one_reads_what_is_ones_own(shared_cast: Cast, console: RunningConsole) -> None:
    with Flotilla(console.url, shared_cast.token("vera", "read"), project="wren") as client:
        assert client.people.access("vera")["memberships"][0]["role"] == "viewer"
        assert client.members.get("vera") == {**client.members.all()[-1]}
        assert client.members.get("charlie") is None
        assert client.service_accounts.all() == client.sso.providers() == []
