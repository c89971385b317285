"""``flotilla login``, ``whoami`` and ``logout`` against the real server, with a person in the console."""

from __future__ import annotations

import json
import re
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner, Result
from django.core.cache import cache
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from console.identity import attempts
from flotilla.cli import main
from flotilla.sdk import sign_in
from registry.models import ApiToken, AuditEvent, LoginRequest, LoginState, Transition
from registry.services import login_requests as services
from registry.services.login_requests import login_requests_purge
from tests.console.conftest import Cast, RunningConsole, signed_in
from tests.registry.issuer import GITHUB, listening

Run = Callable[..., Result]
ASK = {"client": "builder-7", "scopes": ["read", "write"]}


@pytest.fixture(autouse=True)
def _no_attempts() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def run(console: RunningConsole, tmp_path: Path) -> Run:
    environment = {
        "FLOTILLA_CONFIG_DIR": str(tmp_path / "config"),
        "FLOTILLA_URL": "",
        "FLOTILLA_TOKEN": "",
        "FLOTILLA_TOKEN_FILE": "",
        "FLOTILLA_PROJECT": "",
        "FLOTILLA_PROFILE": "",
    }

    def call(*arguments: str, given: str = "", **more: str) -> Result:
        return CliRunner().invoke(main, [*arguments], input=given, env=environment | more)

    return call


def confirm(user: Any, code: str, decision: str) -> None:
    browser = Client()
    signed_in(browser, user)
    shown = browser.get(f"/connect/?code={code.lower().replace('-', ' ')}")
    assert code in shown.text and "30 days" in shown.text
    answer = browser.post("/connect/", {"code": code, "decision": decision})
    assert (answer.status_code, answer["Location"]) == (302, "/settings/tokens/")


def login_in_thread(run: Run, console: RunningConsole, *more: str) -> Callable[[], Result]:
    """Start ``flotilla login`` and return what waits for its end."""
    results: list[Result] = []
    thread = threading.Thread(
        target=lambda: results.append(run("login", "--url", console.url, "--no-browser", *more)), daemon=True
    )
    thread.start()

    def end() -> Result:
        thread.join(60)
        return results[0]

    return end


def wait_for_code() -> str:
    for _attempt in range(600):
        row = LoginRequest.objects.first()
        if row is not None:
            return row.user_code
        threading.Event().wait(0.05)
    raise AssertionError("flotilla login did not ask")


def test_login_is_confirmed_by_a_person_and_kept_for_oneself(
    run: Run, shared_cast: Cast, console: RunningConsole, tmp_path: Path
) -> None:
    end = login_in_thread(run, console, "--project", "wren")
    code = wait_for_code()
    confirm(shared_cast.bob, code, "grant")
    done = end()
    assert done.exit_code == 0, done.output
    assert f"confirm this code: {code}" in done.output and "as bob" in done.output
    file = tmp_path / "config" / "profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = json.loads(file.read_text())["profiles"]["default"]["token"]
    assert token not in done.output
    row = ApiToken.objects.get()
    assert (row.owner, row.project, row.scopes) == (shared_cast.bob, shared_cast.project, ["read", "write"])
    assert row.expires_at is not None and row.expires_at - timezone.now() > timedelta(days=29)
    assert [t.to_state for t in Transition.objects.filter(object_type="loginrequest").order_by("id")] == [
        "granted",
        "claimed",
    ]
    assert {"login.granted", "token.create"} <= set(AuditEvent.objects.values_list("action", flat=True))
    assert all(token.split("_")[2] not in json.dumps(event.after) for event in AuditEvent.objects.all())
    assert json.loads(run("whoami", "--json").output)["username"] == "bob"
    assert json.loads(run("models", "--json").output) == []
    # an environment variable wins over the profile
    assert "as carol" not in run("whoami").output
    assert run("whoami", FLOTILLA_TOKEN=shared_cast.token("vera", "read")).output.startswith("vera at")
    assert "its token is revoked" in run("logout").output
    row.refresh_from_db()
    assert row.revoked_at is not None
    assert "There is no profile" in run("logout").output


def test_a_denied_login_says_so(run: Run, shared_cast: Cast, console: RunningConsole) -> None:
    end = login_in_thread(run, console)
    confirm(shared_cast.bob, wait_for_code(), "deny")
    done = end()
    assert done.exit_code == 10
    assert "The sign-in was denied in the console. [permission_denied, request " in done.output
    assert not ApiToken.objects.exists()


def test_a_token_on_standard_input_is_tried_before_it_is_kept(
    run: Run, shared_cast: Cast, console: RunningConsole, tmp_path: Path
) -> None:
    refused = run("login", "--url", console.url, "--token-stdin", given="flo_no_such\n")
    assert refused.exit_code == 10 and "Sign in with: flotilla login" in refused.output
    assert run("login", "--url", console.url, "--token-stdin", given="hello\n").exit_code == 2
    assert not (tmp_path / "config").exists()
    told = run("login", "--url", console.url, "--token-stdin", "--profile", "ci", given=shared_cast.token("bob"))
    assert told.exit_code == 0, told.output
    assert run("whoami", "--profile", "ci").output.startswith("bob at")
    assert "There is no profile other" in run("whoami", "--profile", "other").output
    (tmp_path / "config" / "profiles.json").chmod(0o644)
    assert "chmod 600" in run("whoami").output


def test_the_token_of_a_profile_goes_to_no_other_console(run: Run, shared_cast: Cast, console: RunningConsole) -> None:
    run("login", "--url", console.url, "--token-stdin", given=shared_cast.token("bob"))
    other = run("whoami", "--url", console.url.replace("127.0.0.1", "localhost"))
    assert other.exit_code == 10 and "[not_authenticated" in other.output


def asked(**more: Any) -> dict[str, Any]:
    answer = APIClient().post("/api/v1/login-requests/", ASK | more)
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def claim(secret: str) -> Any:
    return APIClient().post("/api/v1/login-requests/claim", {"secret": secret})


def test_a_code_works_once(cast: Cast) -> None:
    begun = asked()
    assert re.fullmatch(r"[B-Z]{4}-[B-Z]{4}", begun["user_code"])
    assert claim(begun["secret"]).status_code == 202
    row = LoginRequest.objects.get()
    assert begun["secret"] not in str(row.__dict__)
    services.login_decide(request=row, grant=True, actor=cast.actor("bob"))
    first, again = claim(begun["secret"]), claim(begun["secret"])
    assert first.status_code == 200 and first.headers["Cache-Control"] == "no-store"
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert ApiToken.objects.count() == 1
    browser = Client()
    signed_in(browser, cast.bob)
    page = browser.get(f"/connect/?code={begun['user_code']}")
    assert page.status_code == 422 and "No sign-in waits under this code" in page.text


def test_a_code_runs_out(cast: Cast) -> None:
    begun = asked()
    LoginRequest.objects.update(expires_at=timezone.now())
    assert (claim(begun["secret"]).status_code, claim("x").status_code) == (409, 404)
    with pytest.raises(services.Conflict, match="run out"):
        services.login_decide(request=LoginRequest.objects.get(), grant=True, actor=cast.actor("bob"))
    assert login_requests_purge(timezone.now()) == 0
    assert login_requests_purge(timezone.now() + timedelta(days=2)) == 1


def test_only_members_grant_a_project_and_only_people_grant(cast: Cast, api: Callable[..., Any]) -> None:
    asked(project="wren")
    row = LoginRequest.objects.get()
    with pytest.raises(services.PermissionDenied, match="not a member"):
        services.login_decide(request=row, grant=True, actor=cast.actor("charlie"))
    token, _text = cast.token_row("bob")
    with pytest.raises(services.PermissionDenied, match="Only a person"):
        services.login_decide(request=row, grant=True, actor=services.Actor.person(cast.bob, token=token))
    row.refresh_from_db()
    assert row.state == LoginState.WAITING


def test_a_blocked_account_gets_no_token(cast: Cast) -> None:
    begun = asked()
    services.login_decide(request=LoginRequest.objects.get(), grant=True, actor=cast.actor("bob"))
    cast.bob.is_active = False
    cast.bob.save()
    assert claim(begun["secret"]).status_code == 403
    assert LoginRequest.objects.get().state == LoginState.GRANTED


def test_asking_and_guessing_are_limited(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.AskThrottle, "calls", 2)
    monkeypatch.setattr(attempts, "CODES_PER_ACCOUNT", 2)
    asked()
    asked()
    refused = APIClient().post("/api/v1/login-requests/", ASK)
    assert refused.status_code == 429 and int(refused.headers["Retry-After"]) == attempts.WINDOW_SECONDS
    browser = Client()
    signed_in(browser, cast.bob)
    assert [browser.get("/connect/?code=BBBB-BBBB").status_code for _time in range(3)] == [422, 422, 403]


def test_many_waiting_sign_ins_are_refused(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_WAITING_OF_ADDRESS", 1)
    asked()
    assert APIClient().post("/api/v1/login-requests/", ASK).json()["code"] == "quota_exceeded"
    assert APIClient().post("/api/v1/login-requests/", ASK | {"token_days": 0}).json()["code"] == "validation_failed"


def test_a_session_has_no_token_to_revoke(cast: Cast) -> None:
    browser = APIClient()
    signed_in(browser, cast.bob)
    assert browser.post("/api/v1/me/revoke-token").status_code == 404


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_job_of_ci_signs_in_with_its_identity(
    run: Run, shared_cast: Cast, console: RunningConsole, settings: Any, kind: str, tmp_path: Path
) -> None:
    settings.ISSUER_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    alice = APIClient()
    alice.credentials(HTTP_AUTHORIZATION=f"Bearer {shared_cast.token('alice')}")
    with listening() as issuer:
        shared_cast.trust_rule()
        alice.post("/api/v1/issuers/", {"slug": "own", "kind": "github", "url": issuer.url})
        rule = {
            "name": "own",
            "issuer": "own",
            "service_account": "robot",
            "repository": "octo/swift",
            "repository_id": "4711",
            "owner_id": "99",
            "scopes": ["write"],
        }
        assert alice.post("/api/v1/projects/wren/trust-rules/", rule).status_code == 201
        assertion = issuer.token(sign_in.audience_of(console.url), GITHUB)
        given = {"FLOTILLA_ID_TOKEN": assertion}
        if kind == "github":
            asked = urlencode({"audience": sign_in.audience_of(console.url)})
            issuer.documents[f"/job?v=2&{asked}"] = {"value": assertion}
            given = {"ACTIONS_ID_TOKEN_REQUEST_URL": f"{issuer.url}/job?v=2", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "t"}
        assert "This job has no identity" in run("login", "--url", console.url, "--oidc").output
        done = run("login", "--url", console.url, "--oidc", "--project", "wren", **given)
        assert done.exit_code == 0, done.output
        assert "as robot until" in done.output and "ey" + assertion[2:20] not in done.output
    assert run("whoami").output.startswith("robot at")
    assert run("models", "--json").output == "[]\n"
