"""A real browser: no violation of the content security policy, the keyboard reaches everything, axe finds nothing."""

from __future__ import annotations

import os
import re
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


def test_the_call_follows_what_is_typed_and_a_wrong_name_is_told_at_its_field(
    shared_served: Served, visitor: Visitor
) -> None:
    visitor.sign_in("alice")
    page = visitor.open("/p/wren/models/new/")
    page.get_by_test_id("model-form").get_by_label("Description").fill("It's a bird")
    page.get_by_test_id("model-form").get_by_label("Name").fill("heron")
    call = page.locator("#model-new-curl").inner_text()
    assert """-d '{"slug":"heron","description":"It'\\''s a bird","task":""}'""" in call
    page = visitor.open("/settings/tokens/")
    page.get_by_test_id("token-scope").select_option("read")
    page.get_by_test_id("token-form").get_by_label("Only from").fill("10.1.0.0/16, 10.2.0.0/16")
    assert '"scopes":["read"]' in page.locator("#tokens-curl").inner_text()
    assert '"allowed_networks":["10.1.0.0/16","10.2.0.0/16"]' in page.locator("#tokens-curl").inner_text()
    assert visitor.problems == []
    page = visitor.open("/p/wren/upload/")
    page.get_by_test_id("upload-model").fill("heron")
    assert "flotilla push heron model.onnx" in page.locator("#upload-push").inner_text()
    page.get_by_test_id("upload-model").fill("größe")
    page.get_by_test_id("upload-files").set_input_files({"name": "m.onnx", "mimeType": "", "buffer": b"x"})
    page.get_by_test_id("upload-list").get_by_text("m.onnx").wait_for()
    page.get_by_test_id("upload-submit").click()
    page.locator("#id_model_error").get_by_text("Use letters, digits").wait_for()
    assert page.evaluate("document.activeElement.name") == "model"
    assert page.get_by_test_id("upload-model").input_value() == "größe"
    page.get_by_test_id("upload-model").fill("heron")
    assert page.locator("#id_model_error").count() == 0


def test_the_config_editor_judges_while_typing(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.open("/p/wren/models/finch/configs/new/")
    field = page.get_by_test_id("config:dynamic_batching.preferred_batch_size")
    field.fill("4, 4000")
    page.locator("#err-f-dynamic_batching-preferred_batch_size .errors").wait_for()
    assert page.evaluate("document.activeElement.name") == "dynamic_batching.preferred_batch_size"
    page.get_by_role("tab", name="Diff").click()
    field.fill("2, 4")
    page.get_by_test_id("config-ok").wait_for()
    page.locator("#config-preview", has_text="preferred_batch_size").wait_for()
    assert page.get_by_role("tab", name="Diff").get_attribute("aria-selected") == "true"
    page.get_by_test_id("config-save").click()
    page.wait_for_url("**/configs/2/")
    assert visitor.problems == []


def test_sequences_are_set_up_in_the_form(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.open("/p/wren/models/finch/configs/new/")
    page.get_by_test_id("config:sequence_batching").check()
    page.get_by_test_id("config:sequence_batching.oldest").check()
    page.get_by_test_id("config:sequence_batching.oldest.max_candidate_sequences").fill("64")
    page.get_by_test_id("config:sequence_batching.max_sequence_idle_microseconds").fill("5000000")
    page.get_by_test_id("config-add:sequence_batching.control_input").click()
    page.get_by_test_id("config:sequence_batching.control_input[0].name").fill("START")
    page.get_by_test_id("config-add:sequence_batching.control_input[0].control").click()
    # it says at once, at the signal itself, that two values are missing
    page.locator("#err-f-sequence_batching-control_input-0-control-0- .errors").wait_for()
    page.get_by_test_id("config:sequence_batching.control_input[0].control[0].int32_false_true").fill("0, 1")
    page.get_by_test_id("config-add:sequence_batching.state").click()
    state = "config:sequence_batching.state[0]"
    page.get_by_test_id(f"{state}.input_name").fill("S_IN")
    page.get_by_test_id(f"{state}.output_name").fill("S_OUT")
    page.get_by_test_id(f"{state}.data_type").select_option("TYPE_FP32")
    page.get_by_test_id(f"{state}.dims").fill("4")
    page.get_by_test_id(f"config-add:{state[7:]}.initial_state").click()
    page.get_by_test_id(f"{state}.initial_state[0].zero_data").check()
    shown = page.locator("#config-pbtxt")
    for text in ("max_candidate_sequences: 64", "int32_false_true: 1", "zero_data: true", 'name: "START"'):
        shown.filter(has_text=text).wait_for()
    page.get_by_role("tab", name="curl").click()
    page.locator("#config-curl", has_text="max_candidate_sequences").wait_for()
    assert "/api/v1/projects/wren/models/finch/configs/" in page.locator("#config-curl").inner_text()
    assert visitor.problems == []


def test_an_ensemble_is_set_up_in_the_form(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.open("/p/wren/models/finch/configs/new/")
    page.get_by_test_id("config:ensemble_scheduling").check()
    page.get_by_test_id("config-add:ensemble_scheduling.step").click()
    step = "ensemble_scheduling.step[0]"
    assert page.get_by_test_id(f"config:{step}.model_version").input_value() == "-1"
    page.get_by_test_id(f"config:{step}.model_name").fill("inner")
    for side, tensor in (("input_map", "x"), ("output_map", "y")):
        page.get_by_test_id(f"config-add:{step}.{side}").click()
        page.get_by_test_id(f"config:{step}.{side}{{0}}#key").fill(tensor.upper())
        page.get_by_test_id(f"config:{step}.{side}{{0}}#value").fill(tensor)
    page.get_by_test_id("config:ensemble_scheduling.max_inflight_requests").fill("8")
    page.locator("#config-pbtxt", has_text="max_inflight_requests: 8").wait_for()
    text = page.locator("#config-pbtxt").inner_text()
    assert 'model_name: "inner"' in text and "model_version: -1" in text and 'key: "X"' in text
    # what an ensemble may not have is said where it is
    page.locator("#err-f-backend .errors, #err-f-platform .errors").first.wait_for()
    assert visitor.problems == []


def test_priorities_and_rate_limits_are_saved_from_the_form(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.open("/p/wren/models/finch/configs/new/")
    page.get_by_test_id("config:dynamic_batching").check()
    page.get_by_test_id("config:dynamic_batching.priority_levels").fill("2")
    page.locator("#err-f-dynamic_batching-default_priority_level .errors").wait_for()
    page.get_by_test_id("config:dynamic_batching.default_priority_level").fill("2")
    page.get_by_test_id("config-add:dynamic_batching.priority_queue_policy").click()
    policy = "config:dynamic_batching.priority_queue_policy{0}"
    page.get_by_test_id(f"{policy}#key").fill("3")
    page.get_by_test_id(f"{policy}.timeout_action").select_option("DELAY")
    page.get_by_test_id(f"{policy}.max_queue_size").fill("100")
    page.locator("#err-f-dynamic_batching-priority_queue_policy-0- .errors").wait_for()
    page.get_by_test_id("config-save").click()
    page.wait_for_load_state()
    # refused: the sentence stands at its row, and what was typed is there
    page.locator("#err-f-dynamic_batching-priority_queue_policy-0- .errors").wait_for()
    assert page.get_by_test_id(f"{policy}.max_queue_size").input_value() == "100"
    page.get_by_test_id(f"{policy}#key").fill("1")
    if page.get_by_test_id("config:instance_group[0].count").count() == 0:
        page.get_by_test_id("config-add:instance_group").click()
    else:
        page.locator('[data-row-index="0"]', has=page.get_by_test_id("config:instance_group[0].count")).locator(
            "summary"
        ).first.click()
    resources = "instance_group[0].rate_limiter.resources"
    page.get_by_test_id(f"config-add:{resources}").click()
    page.get_by_test_id(f"config:{resources}[0].name").fill("memory")
    page.get_by_test_id(f"config:{resources}[0].count").fill("4")
    page.get_by_test_id("config:instance_group[0].rate_limiter.priority").fill("2")
    page.get_by_test_id("config-ok").wait_for()
    page.get_by_test_id("config-save").click()
    page.wait_for_url(re.compile(r"/configs/\d+/$"))
    saved = page.locator("#config-text").inner_text()
    for text in ("key: 1", "timeout_action: DELAY", "max_queue_size: 100", 'name: "memory"', "priority: 2"):
        assert text in saved
    assert [problem for problem in visitor.problems if "422" not in problem] == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
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
