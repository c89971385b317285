"""Before a node is taken out of service its page says what stops with it, and what other nodes go on with."""

from __future__ import annotations

from django.utils import timezone

from registry.models import ServingNode
from registry.selectors.draining import drain_effects
from registry.services import fleet
from serving_node.contract.control import Observed, ObservedUnit
from serving_node.contract.states import UnitState
from tests.console.conftest import join_node
from tests.console.web.conftest import Browse, Served
from tests.console.web.test_heat import measure


def answer_for(node: ServingNode, name: str, weight: int = 100) -> None:
    """Let a node say that it takes a share of the traffic of a served name."""
    unit = ObservedUnit(name, "u1", 1, UnitState.READY, routed_weight=weight)
    observed = Observed(node=str(node.pk), epoch=1, generation_seen=1, generation_applied=1, models=(unit,))
    fleet.node_observe(node=node, observed=observed, now=timezone.now())
    node.refresh_from_db()


def test_a_node_that_answers_alone_is_told_from_one_among_several(served: Served, browse: Browse) -> None:
    alice, name = served.cast.actor("alice"), served.deployment.served_name
    assert drain_effects(alice, served.node, timezone.now()).seen == ()
    answer_for(served.node, name)
    measure(served.node, name, requests=120)
    (alone,) = drain_effects(alice, served.node, timezone.now()).seen
    assert (alone.deployment, alone.request_rate, alone.others) == (served.deployment, 2.0, 0)
    page = browse("alice").get(f"/fleet/nodes/{served.node.pk}/").text
    assert "nothing else answers" in page and "2.0" in page
    second, _token = join_node(served.cast, "node-2", environment="dev")
    answer_for(second, name)
    (among,) = drain_effects(alice, served.node, timezone.now()).seen
    assert among.others == 1
    answer_for(second, name, weight=0)
    assert drain_effects(alice, served.node, timezone.now()).seen[0].others == 0


def test_deployments_of_strangers_are_only_counted(served: Served) -> None:
    answer_for(served.node, served.deployment.served_name)
    found = drain_effects(served.cast.actor("charlie"), served.node, timezone.now())
    assert (found.seen, found.hidden) == ((), 1)
