"""What moves by itself on a page: countdowns, without loading the page again."""

from __future__ import annotations

import re
from datetime import timedelta

from registry.models import Environment
from tests.console.web.conftest import Served
from tests.console.web.test_browser import Visitor, console, pytestmark, visitor
from tests.console.web.test_browser_measurements import in_database
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
