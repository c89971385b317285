"""The page of a node shows how the environments of its models were built."""

from __future__ import annotations

from django.utils import timezone

from registry.services import fleet
from serving_node.contract.control import Observed, ObservedUnit, Reason
from serving_node.contract.states import UnitState
from tests.console.web.conftest import Browse, Served


def test_what_pip_said_stands_beside_the_unit(served: Served, browse: Browse) -> None:
    reason = Reason("load_failed", "the environment of model 'finch' cannot be built")
    failed = ObservedUnit("finch", "u1", 1, UnitState.FAILED, reason, build_log="ERROR: no <match>")
    plain = ObservedUnit("finch", "u2", 2, UnitState.READY)
    observed = Observed(str(served.node.pk), 1, 1, 1, models=(failed, plain))
    fleet.node_observe(node=served.node, observed=observed, now=timezone.now())
    page = browse("bob").get(f"/fleet/nodes/{served.node.pk}/").content.decode()
    assert '<pre class="log" tabindex="0">ERROR: no &lt;match&gt;</pre>' in page
    assert page.count("Log of its environment") == 1
