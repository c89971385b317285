"""What moves by itself on a page: countdowns, without loading the page again."""

from __future__ import annotations

import re
from datetime import timedelta

from registry.models import Environment, ServingNode
from registry.services.rollouts import rollout_move
from serving_node.contract.states import UnitState
from tests.console.conftest import join_node
from tests.console.web.conftest import Served
from tests.console.web.test_browser import Visitor, console, pytestmark, visitor
from tests.console.web.test_browser_measurements import in_database
from tests.console.web.test_heat import observe
from tests.console.web.test_starting import freeze

__all__ = ["console", "pytestmark", "visitor"]


def test_a_closed_window_counts_down_and_is_looked_at_again_when_it_opens(
    shared_served: Served, visitor: Visitor
) -> None:
    opens = in_database(lambda: freeze("prod", opens_in=timedelta(hours=2, minutes=5)))
    visitor.sign_in("alice")
    page = visitor.page
    page.clock.install()
    visitor.open("/p/wren/models/finch/deploy/?fleet=prod")
    left = page.locator("#deploy-opens [data-countdown]")
    left.wait_for()
    assert page.locator("#deploy-opens time").get_attribute("datetime") == opens.isoformat()
    # The server's "12:30 UTC" has become the time where the reader is.
    assert re.search(r"\d\d:\d\d$", page.locator("#deploy-opens time").text_content())
    assert left.text_content().startswith(", in 2 h ")
    page.clock.fast_forward("01:30:00")
    page.locator("#deploy-opens [data-countdown]").filter(has_text=re.compile(r"in 3\d min \d+ s")).wait_for()
    in_database(lambda: Environment.objects.filter(slug="prod").update(windows=[]))
    # Nobody loads the page: it asks again when the time has come.
    page.evaluate("window.kept = true")
    page.clock.fast_forward("00:36:00")
    left.wait_for(state="detached")
    assert page.evaluate("window.kept") is True
    assert "Needs 1 approval" in page.get_by_test_id("plan-approval").inner_text()
    assert visitor.problems == []


def test_the_stages_of_a_rollout_move_without_loading_the_page(shared_served: Served, visitor: Visitor) -> None:
    visitor.sign_in("alice")
    page = visitor.page
    page.clock.install()
    visitor.open(f"/p/wren/deployments/{shared_served.deployment.pk}/")
    load = page.locator("[data-testid=track-rollout] [data-stage=load]")
    passed = load.locator("[data-elapsed]")
    page.clock.fast_forward("00:07:00")
    passed.filter(has_text=re.compile(r"^7 min \d+ s$")).wait_for()
    page.evaluate("window.kept = true")
    page.locator("#live-state[data-state=live]").wait_for()
    rollout = shared_served.rollout
    in_database(lambda: rollout_move(rollout=rollout, to="verifying", cause="Every unit is ready."))
    page.locator("[data-stage=load][data-state=done]").wait_for()
    page.locator("[data-stage=verify][data-state=current]").wait_for()
    assert page.evaluate("window.kept") is True
    assert visitor.problems == []


def test_the_heat_map_is_walked_by_keyboard(shared_served: Served, visitor: Visitor) -> None:
    in_database(lambda: observe(shared_served.node, ("finch", UnitState.READY)))
    in_database(lambda: join_node(shared_served.cast, "node-2", environment="dev"))
    visitor.sign_in("alice")
    page = visitor.open("/fleet/heat/")
    page.get_by_role("grid").wait_for()
    assert page.get_by_role("columnheader", name="finch").count() == 1
    # One stop in the order of Tab.
    assert page.locator("[data-heat] [tabindex='0']").count() == 1
    page.locator(f"#heat-{shared_served.node.pk}").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Ready"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Absent"
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.textContent") == "node-2"
    page.keyboard.press("PageUp")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/p/wren/deployments/{shared_served.deployment.pk}/")
    assert visitor.problems == []


def test_undo_is_in_the_toast_and_by_keyboard(shared_served: Served, visitor: Visitor) -> None:
    in_database(lambda: observe(shared_served.node))
    visitor.sign_in("alice")
    page = visitor.open(f"/fleet/nodes/{shared_served.node.pk}/")
    page.get_by_test_id("node-cordon").click()
    undo = page.get_by_test_id("undo")
    undo.wait_for()
    page.keyboard.press("u")
    assert page.evaluate("document.activeElement.dataset.testid") == "undo"
    page.keyboard.press("Enter")
    page.locator(".toast-s", has_text="The node takes deployments again.").wait_for()
    assert in_database(lambda: ServingNode.objects.get(pk=shared_served.node.pk).is_schedulable)
    assert visitor.problems == []
