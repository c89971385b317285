"""Axe over what is not there when a page opens: logs, evidence, answers side by side, toasts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from registry.models import Check, Operation
from registry.services import fleet as fleet_services
from registry.services import operations
from serving_node.contract.control import Observed, ObservedUnit, Reason
from serving_node.contract.states import UnitState
from tests.console.web.conftest import Served
from tests.console.web.test_browser import AXE, Visitor, console, pytestmark, visitor
from tests.console.web.test_browser_measurements import in_database
from tests.console.web.test_try_it import answer, answered, two_units

__all__ = ["console", "pytestmark", "visitor"]

LINES = [f"2026-06-05 12:00:{second:02} INFO model.loaded name=finch" for second in range(60)]


@dataclass
class Later:
    """Operations whose answers the pages fetch."""

    logs: Operation
    left: Operation
    right: Operation


def prepare(served: Served) -> Later:
    """Let there be a log of a node, of an environment and of a check, and two answers."""
    alice, now = served.cast.actor("alice"), served.deployment.created_at
    reason = Reason("load_failed", "the environment of model 'finch' cannot be built")
    failed = ObservedUnit("finch", "u1", 1, UnitState.FAILED, reason, build_log="\n".join(LINES))
    observed = Observed(str(served.node.pk), 1, 1, 1, models=(failed,))
    fleet_services.node_observe(node=served.node, observed=observed, now=now)
    Check.objects.create(
        version=served.version, kind="smoke", verdict="fail", evidence={"rows": [*range(60)]}, log="\n".join(LINES)
    )
    logs = operations.operation_create(
        kind="node_logs",
        queue="interactive",
        subject_type="servingnode",
        subject_id=served.node.pk,
        project=served.cast.project,
        params={},
        actor=alice,
    )
    answer(logs, {"nodes": [{"node": "node-1", "lines": LINES, "error": ""}]})
    live, canary = two_units(served)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}]}
    left, right = (
        operations.try_it(deployment=served.deployment, inputs=body, unit=one.unit, actor=alice)
        for one in (live, canary)
    )
    answer(left, answered([float(number) for number in range(80)]))
    answer(right, answered([number + 0.5 for number in range(80)]))
    return Later(logs, left, right)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_what_comes_later(scheme: str, shared_served: Served, visitor: Visitor) -> None:
    later = in_database(lambda: prepare(shared_served))
    visitor.sign_in("alice")
    context = visitor.page.context.browser.new_context(
        bypass_csp=True,
        color_scheme=scheme,
        storage_state=visitor.page.context.storage_state(),
        reduced_motion="reduce",
    )
    page = context.new_page()
    node, deployment = f"/fleet/nodes/{shared_served.node.pk}/", f"/p/wren/deployments/{shared_served.deployment.pk}/"
    logs, answers = f"/logs/{later.logs.pk}/", f"/try/{later.left.pk}/{later.right.pk}/"
    found = []
    for path, fragment, target in (
        (node, logs, "#node-log"),
        (deployment, logs, "#deployment-log"),
        ("/p/wren/models/finch/try/", answers, "#try-result"),
        ("/p/wren/models/finch/versions/1/", "", ""),
        (f"/approvals/{shared_served.approval.pk}/", "", ""),
    ):
        page.goto(visitor.url + path)
        if fragment:
            page.evaluate("([path, target]) => htmx.ajax('GET', path, {target, swap: 'innerHTML'})", [fragment, target])
            page.locator(f"{target} [data-testid]").first.wait_for()
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        page.evaluate(
            "import('/static/js/app.js').then((app) => app.toast('success', 'Done.', {address: '/', fields: {}}))"
        )
        page.locator(".toast-s").first.wait_for()
        page.add_script_tag(path=str(AXE))
        result = page.evaluate("axe.run({resultTypes: ['violations']})")
        found += [
            (path, one["id"], [each["target"] for each in one["nodes"]][:3])
            for one in result["violations"]
            if one["impact"] in {"serious", "critical"}
        ]
    context.close()
    assert found == [], "\n".join(map(str, found))
