"""A real browser: no violation of the content security policy, the keyboard reaches everything, axe finds nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import PASSWORD, RunningConsole, running_console
from tests.console.web.conftest import Served

CHROMIUM = "/usr/bin/chromium"
AXE = Path(__file__).parent / "vendor/axe.min.js"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(os.environ.get("FLOTILLA_NO_BROWSER") == "1", reason="FLOTILLA_NO_BROWSER=1"),
]


class Visitor:
    """A page of Chromium that remembers what went wrong in it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        page.on("console", lambda message: message.type == "error" and self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def open(self, path: str) -> Any:
        self.page.goto(self.url + path)
        return self.page

    def sign_in(self, name: str) -> None:
        page = self.open("/login/")
        page.get_by_test_id("login-username").fill(name)
        page.get_by_test_id("login-password").fill(PASSWORD)
        page.get_by_test_id("login-submit").click()
        page.wait_for_url(f"{self.url}/")


@pytest.fixture
def console(shared_served: Served) -> Iterator[RunningConsole]:
    from console.asgi import Application

    with running_console(Application()) as server:
        yield server


@pytest.fixture
def visitor(console: RunningConsole) -> Iterator[Visitor]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # axe is put into the page by the test, so the policy is lifted for it only where it runs.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Visitor(browser.new_page(reduced_motion="reduce"), console.url)
        browser.close()


def test_pages_keep_the_policy_and_throw_nothing(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("alice")
    paths = {name: path for name, path in shared_served.paths().items() if name != "jump"}
    for path in paths.values():
        visitor.open(path).wait_for_load_state("load")
    assert visitor.problems == []


def test_the_keyboard_goes_searches_and_helps(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/p/wren/models/")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "finch"
    page.keyboard.press("?")
    page.locator("#shortcuts[open]").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.locator("#palette[open] [role=option]").first.wait_for()
    page.keyboard.type("finch")
    page.locator("#palette [role=option]", has_text="finch").first.wait_for()
    page.wait_for_function("document.querySelector('#palette [aria-selected=true]')?.textContent.includes('finch')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/models/finch/")
    assert visitor.problems == []


def test_the_config_editor_judges_while_typing(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.open("/p/wren/models/finch/configs/new/")
    field = page.get_by_test_id("config-preferred-batch-size")
    field.fill("4, 4000")
    page.locator("#err-preferred_batch_size .errors").wait_for()
    assert page.evaluate("document.activeElement.dataset.testid") == "config-preferred-batch-size"
    page.get_by_role("tab", name="Diff").click()
    field.fill("2, 4")
    page.get_by_test_id("config-ok").wait_for()
    page.locator("#config-preview", has_text="preferred_batch_size").wait_for()
    assert page.get_by_role("tab", name="Diff").get_attribute("aria-selected") == "true"
    page.get_by_test_id("config-save").click()
    page.wait_for_url("**/configs/2/")
    assert visitor.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem(scheme: str, shared_served: Served, visitor: Visitor) -> None:
    from playwright.sync_api import Page

    visitor.sign_in("alice")
    context = visitor.page.context.browser.new_context(
        bypass_csp=True, color_scheme=scheme, storage_state=visitor.page.context.storage_state()
    )
    page: Page = context.new_page()
    found = []
    for name, path in shared_served.paths().items():
        if name == "jump":
            continue
        page.goto(visitor.url + path)
        page.add_script_tag(path=str(AXE))
        result = page.evaluate("axe.run({resultTypes: ['violations']})")
        found += [
            (name, one["id"], [node["target"] for node in one["nodes"]][:3])
            for one in result["violations"]
            if one["impact"] in {"serious", "critical"}
        ]
    context.close()
    assert found == [], "\n".join(map(str, found))
