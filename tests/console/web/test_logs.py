"""Logs on the pages: asked for with a button, followed until they are there."""

from __future__ import annotations

from registry.models import Operation
from tests.console.web.conftest import Browse, Served


def test_the_log_of_a_node_follows_its_operation(served: Served, browse: Browse) -> None:
    alice = browse("alice")
    page = alice.get(f"/fleet/nodes/{served.node.pk}/").text
    assert f"/fleet/nodes/{served.node.pk}/logs/" in page and "flotilla logs node node-1" in page
    begun = alice.post(f"/fleet/nodes/{served.node.pk}/logs/").text
    operation = Operation.objects.get(kind="node_logs")
    assert f'hx-get="/logs/{operation.pk}/"' in begun
    operation.state, operation.result = "succeeded", {"nodes": [{"node": "node-1", "lines": ["<b>one"], "error": ""}]}
    operation.save()
    ended = alice.get(f"/logs/{operation.pk}/").text
    assert "&lt;b&gt;one" in ended and "hx-get" not in ended
    assert browse("charlie").get(f"/logs/{operation.pk}/").status_code == 404


def test_only_operators_of_the_site_read_the_log_of_a_node(served: Served, browse: Browse) -> None:
    assert "logs/" not in browse("bob").get(f"/fleet/nodes/{served.node.pk}/").text
    assert "This needs the site role" in browse("bob").post(f"/fleet/nodes/{served.node.pk}/logs/").text
    assert not Operation.objects.filter(kind="node_logs").exists()


def test_publishers_read_what_is_logged_about_a_deployment(served: Served, browse: Browse) -> None:
    address = f"/p/wren/deployments/{served.deployment.pk}/logs/"
    assert 'data-state="pending"' in browse("bob").post(address).text
    assert "needs the role" in browse("vera").post(address).text
    assert browse("charlie").post(address).status_code == 404
