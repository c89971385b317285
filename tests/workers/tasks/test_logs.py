"""Logs of nodes: who may ask, what comes back, and that one silent node hides no other."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.actors import Actor
from registry.errors import PermissionDenied
from registry.models import AuditEvent, Membership, Operation, Role, ServingNode, User
from registry.services.logs import deployment_logs, node_logs
from tests.workers import factories
from workers.node_client.fake import FakeNode
from workers.tasks import logs
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)

LINES = ["I1 node started", "I2 loaded model=mlp", "W3 mlp-large is slow", "I4 unit mlp/1 ready", "I5 model=mlp2"]


@pytest.fixture
def world(hints: list[tuple[str, str]]) -> Any:
    version = factories.make_ready_version()
    outcome = factories.deploy(version.model, factories.make_fleet(), v1=100)
    node, fake = factories.make_node(), FakeNode("n1")
    ServingNode.objects.filter(pk=node.pk).update(lease_until=timezone.now() + timedelta(minutes=1))
    fake.log[:] = LINES
    return version, outcome.deployment, node, fake


def done(operation: Operation, fake: FakeNode) -> dict[str, Any]:
    handlers = {name: partial(getattr(logs, name), connect=fake.connect) for name in ("node_logs", "deployment_logs")}
    work_on(operation.pk, handlers)
    operation.refresh_from_db()
    assert operation.state == "succeeded", operation.error
    return dict(operation.result or {})


def of(user: User) -> Actor:
    return Actor.person(user)


def test_a_deployment_shows_the_lines_that_name_its_model(world: Any) -> None:
    version, deployment, _node, fake = world
    found = done(deployment_logs(deployment=deployment, tail=50, actor=of(version.model.owner)), fake)
    assert found["nodes"] == [{"node": "n1", "lines": ["I2 loaded model=mlp", "I4 unit mlp/1 ready"], "error": ""}]
    assert AuditEvent.objects.filter(action="deployment.logs").count() == 1


def test_the_newest_lines_of_a_node_are_for_the_site(world: Any) -> None:
    version, _deployment, node, fake = world
    with pytest.raises(PermissionDenied):
        node_logs(node=node, actor=of(version.model.owner))
    operator = User.objects.create(username="operator", site_role="operator")
    found = done(node_logs(node=node, tail=2, actor=of(operator)), fake)
    assert found["nodes"] == [{"node": "n1", "lines": LINES[-2:], "error": ""}]


def test_a_viewer_does_not_read_logs(world: Any) -> None:
    _version, deployment, _node, _fake = world
    viewer = User.objects.create(username="viewer")
    Membership.objects.create(project=deployment.project, user=viewer, role=Role.VIEWER)
    with pytest.raises(PermissionDenied):
        deployment_logs(deployment=deployment, actor=of(viewer))


def test_a_silent_node_is_noted(world: Any) -> None:
    version, deployment, node, fake = world
    fake.refuse_requests = 9
    found = done(deployment_logs(deployment=deployment, actor=of(version.model.owner)), fake)
    assert found["nodes"][0]["lines"] == [] and found["nodes"][0]["error"]
    ServingNode.objects.filter(pk=node.pk).update(lease_until=None)
    found = done(deployment_logs(deployment=deployment, actor=of(version.model.owner)), fake)
    assert found["nodes"][0]["error"] == "The node cannot be reached."


def test_a_long_log_is_cut_at_its_beginning(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    version, deployment, _node, fake = world
    monkeypatch.setattr(logs, "MAX_RESULT_CHARACTERS", 25)
    found = done(deployment_logs(deployment=deployment, actor=of(version.model.owner)), fake)
    assert found["nodes"][0]["lines"] == ["I4 unit mlp/1 ready"]
