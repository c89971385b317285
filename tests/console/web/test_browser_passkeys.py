"""Passkeys in a real browser with a virtual authenticator: as second factor, alone, and to confirm who one is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from allauth.account.internal.flows.login import AUTHENTICATION_METHODS_SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import connections

from registry.models import AuditEvent
from tests.console.conftest import RunningConsole
from tests.console.web.conftest import Served
from tests.console.web.test_browser import AXE, Visitor, console, pytestmark

__all__ = ["console", "pytestmark"]


@pytest.fixture
def visitor(console: RunningConsole) -> Iterator[Visitor]:
    from playwright.sync_api import sync_playwright

    cache.clear()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        # Browsers know passkeys over http only at this name.
        yield Visitor(browser.new_page(reduced_motion="reduce"), console.url.replace("127.0.0.1", "localhost"))
        browser.close()


def authenticator(page: Any) -> Any:
    """Plug a device into the browser that has a fingerprint and always says yes."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return session


def add_passkey(visitor: Visitor, *, alone: bool) -> None:
    page = visitor.open("/settings/security/passkeys/add/")
    page.get_by_test_id("passkey-name").fill("My laptop")
    if alone:
        page.get_by_test_id("passkey-alone").check()
    page.get_by_test_id("passkey-submit").click()
    page.get_by_test_id("codes-kept").click()
    page.get_by_test_id("passkey-table").get_by_text("My laptop").wait_for()


T = TypeVar("T")


def in_thread(look: Callable[[], T]) -> T:
    """Use the database away from the browser's event loop."""

    def run() -> T:
        try:
            return look()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(30)


def methods_of_last_sign_in() -> list[str]:
    event = AuditEvent.objects.filter(action="user.sign_in").order_by("-created_at").first()
    assert event is not None
    return list(event.after["methods"])


def let_time_pass() -> None:
    """Let every sign-in be an hour old."""
    for row in Session.objects.all():
        store = SessionStore(row.session_key)
        records = store.get(AUTHENTICATION_METHODS_SESSION_KEY, [])
        store[AUTHENTICATION_METHODS_SESSION_KEY] = [{**one, "at": time.time() - 3600} for one in records]
        store.save()


def test_a_passkey_is_the_second_factor_and_confirms(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.page
    authenticator(page)
    add_passkey(visitor, alone=False)
    page.context.clear_cookies()
    page = visitor.open("/login/")
    page.get_by_test_id("login-username").fill("bob")
    page.get_by_test_id("login-password").fill("correct horse battery")
    page.get_by_test_id("login-submit").click()
    page.get_by_test_id("factor-passkey").click()
    page.wait_for_url(f"{visitor.url}/")
    assert in_thread(methods_of_last_sign_in) == ["password", "mfa"]
    # A while later a token needs a confirmation, by the passkey as well.
    in_thread(let_time_pass)
    page = visitor.open("/settings/tokens/")
    page.locator("[name=name]").fill("ci")
    page.get_by_test_id("token-create").click()
    page.get_by_role("link", name="Use a security key").click()
    page.get_by_test_id("confirm-passkey").click()
    page.get_by_test_id("token-created").wait_for()
    assert visitor.problems == []


def test_a_passkey_alone_signs_in(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("vera")
    page = visitor.page
    authenticator(page)
    add_passkey(visitor, alone=True)
    page.context.clear_cookies()
    page = visitor.open("/login/")
    page.get_by_test_id("login-passkey").click()
    page.wait_for_url(f"{visitor.url}/")
    assert in_thread(methods_of_last_sign_in) == ["mfa"]
    assert visitor.problems == []


def test_without_a_passkey_the_page_says_so(shared_served: Served, visitor: Visitor) -> None:
    page = visitor.open("/login/")
    session = authenticator(page)
    del session
    page.get_by_test_id("login-passkey").click()
    page.get_by_test_id("passkey-error").get_by_text("there is none for this site").wait_for()
    assert page.get_by_test_id("login-passkey").is_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem_on_the_way_in(scheme: str, shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("alice")
    inside = ["app/", "passkeys/add/"]
    paths = [f"/settings/security/{part}" for part in inside] + ["/settings/people/bob/"]
    browser = visitor.page.context.browser
    found: list[Any] = []
    for state, addresses in ((visitor.page.context.storage_state(), paths), (None, ["/login/"])):
        context = browser.new_context(bypass_csp=True, color_scheme=scheme, storage_state=state)
        page = context.new_page()
        for path in addresses:
            page.goto(visitor.url + path)
            page.add_script_tag(path=str(AXE))
            result = page.evaluate("axe.run({resultTypes: ['violations']})")
            bad = [one for one in result["violations"] if one["impact"] in {"serious", "critical"}]
            found += [(path, one["id"], [node["target"] for node in one["nodes"]][:3]) for one in bad]
        context.close()
    assert found == [], "\n".join(map(str, found))
