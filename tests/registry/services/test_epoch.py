"""After a restore: nodes start counting again."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from registry.domain.actors import Actor
from registry.errors import PermissionDenied
from registry.models import AuditEvent, ServingNode
from registry.selectors.desired import desired_state
from registry.services import fleet
from registry.services.node_life import node_epoch_raise

SYSTEM = Actor.system("test")


def _join(name: str) -> ServingNode:
    token = fleet.join_token_create(labels={"development": "yes"}, actor=SYSTEM)[1]
    node, _own = fleet.node_join(
        token=token,
        name=name,
        endpoints={"admin": "http://127.0.0.1:8003"},
        admin_secret="s" * 32,
        inventory={},
        contract_version=1,
    )
    return node


def test_raised_epoch_reaches_the_desired_state(world: Any) -> None:
    first, second = _join("first"), _join("second")
    before = desired_state(first)
    output = StringIO()
    call_command("raise_epoch", "first", stdout=output)
    first.refresh_from_db()
    second.refresh_from_db()
    after = desired_state(first)
    assert (after.epoch, second.epoch) == (before.epoch + 1, 1)
    assert after.generation > before.generation
    assert output.getvalue() == f"first: epoch {after.epoch}\n"
    assert AuditEvent.objects.filter(action="node.epoch", object_id=str(first.pk)).exists()


def test_only_site_operators_raise_it(world: Any) -> None:
    node = _join("n")
    with pytest.raises(PermissionDenied):
        node_epoch_raise(node=node, actor=Actor("anybody"))
