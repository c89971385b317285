"""The measurement page in a real browser: plots drawn, keyboard, phone width, progress, and axe in both themes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from django.db import connections

from registry.models import Operation
from registry.services.operations import operation_claim, operation_report
from tests.console.web.conftest import Served
from tests.console.web.test_browser import AXE, Visitor, console, pytestmark, visitor
from tests.console.web.test_measurements import PATH, add_measurement, let_answer

Found = TypeVar("Found")

__all__ = ["console", "pytestmark", "visitor"]


@pytest.fixture
def measured(shared_served: Served) -> Served:
    """Version 2 is measured, and version 1 before it."""
    let_answer(shared_served.node, weight=100)
    second = shared_served.cast.ready_version("finch", b"other weights")
    add_measurement(shared_served, shared_served.version, 100.0)
    add_measurement(shared_served, second, 150.0)
    return shared_served


def in_database(ask: Callable[[], Found]) -> Found:
    """Use the database in a thread: the browser's loop runs in this one."""

    def work() -> Found:
        try:
            return ask()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def waiting() -> Operation:
    return in_database(lambda: Operation.objects.get(kind="bench_model", state="pending"))


def problems_of(page: Any) -> list[Any]:
    page.add_script_tag(path=str(AXE))
    result = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [(one["id"], one["nodes"][0]["target"]) for one in result["violations"] if one["impact"] != "minor"]


def test_plots_are_drawn_and_the_keyboard_starts_a_measurement(measured: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.open(PATH.format(2))
    page.locator("[data-plot=rows_per_second] canvas").wait_for()
    page.locator("[data-plot=latency_p99] canvas").wait_for()
    assert "1 instance, v1 (dashed)" in page.locator(".legend").first.inner_text()
    assert page.get_by_test_id("measurement-table").locator("tbody tr").count() == 2
    page.get_by_test_id("measure-batch").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("1, 2")
    for _field in ("instances", "seconds", "shapes", "button"):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.testid") == "measure-start"
    page.keyboard.press("Enter")
    page.get_by_test_id("operation").wait_for()
    assert waiting().params["grid"]["batch"] == [1, 2]
    assert visitor.problems == []


def test_progress_is_shown_and_cancel_is_there(measured: Served, visitor: Visitor) -> None:
    visitor.sign_in("bob")
    page = visitor.open(PATH.format(2))
    page.get_by_test_id("measure-start").click()
    page.get_by_test_id("measure-cancel").wait_for()
    operation = waiting()
    in_database(lambda: operation_claim(operation.pk, "w1"))
    in_database(lambda: operation_report(operation.pk, "w1", percent=40, message="Batch 1: 150 rows/s"))
    page.reload()
    page.get_by_test_id("operation").filter(has_text="150 rows/s").wait_for()
    page.get_by_test_id("measure-cancel").click()
    page.wait_for_url("**/operations/**")
    assert in_database(lambda: Operation.objects.get(pk=operation.pk)).cancel_requested


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_and_phone_width(scheme: Any, measured: Served, visitor: Visitor) -> None:
    visitor.sign_in("alice")
    context = visitor.page.context.browser.new_context(
        bypass_csp=True,
        color_scheme=scheme,
        viewport={"width": 390, "height": 844},
        storage_state=visitor.page.context.storage_state(),
    )
    page = context.new_page()
    for path in (PATH.format(2), PATH.format(1), "/p/wren/models/finch/versions/2/", "/settings/projects/"):
        page.goto(visitor.url + path)
        page.wait_for_load_state("load")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert problems_of(page) == [], path
    context.close()
