"""Which topics a caller may hear, and in which permission scope. Uses the database."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from registry.domain.actors import Actor
from registry.errors import RegistryError
from registry.models import (
    ApprovalRequest,
    Deployment,
    ModelVersion,
    Operation,
    Project,
    RegisteredModel,
    ServingNode,
)
from registry.selectors.permissions import can, role_in
from registry.selectors.webhooks import webhooks_visible_to

MAX_TOPICS = 50

_OF_PROJECT: dict[str, Callable[[uuid.UUID], Any]] = {
    "project": lambda pk: Project.objects.filter(pk=pk).first(),
    "model": lambda pk: RegisteredModel.objects.select_related("project").filter(pk=pk).first(),
    "version": lambda pk: ModelVersion.objects.select_related("model__project").filter(pk=pk).first(),
    "deployment": lambda pk: Deployment.objects.select_related("project").filter(pk=pk).first(),
    "approval": lambda pk: ApprovalRequest.objects.select_related("project").filter(pk=pk).first(),
    "operation": lambda pk: Operation.objects.select_related("project").filter(pk=pk).first(),
}
_OF_SITE = ("fleet", "metrics")


def authorise(actor: Actor, topics: Sequence[str]) -> dict[str, str]:
    """Return topic -> scope for those topics that exist and the actor may see; the others are left out.

    The scope is the actor's role in the topic's project (``admin`` for site administrators who see all), or the site
    role for ``fleet``, ``node:<id>`` and ``metrics``, and ``admin`` for ``webhook:<id>``.
    """
    found = {topic: _scope(actor, topic) for topic in dict.fromkeys(topics)}
    return {topic: scope for topic, scope in found.items() if scope is not None}


def _scope(actor: Actor, topic: str) -> str | None:
    prefix, _colon, name = topic.partition(":")
    if topic in _OF_SITE:
        return _site_scope(actor)
    try:
        key = uuid.UUID(name)
    except ValueError:
        return None
    if str(key) != name:
        return None
    if prefix == "webhook":
        return "admin" if webhooks_visible_to(actor).filter(pk=key).exists() else None
    if prefix == "node":
        return _site_scope(actor) if ServingNode.objects.filter(pk=key).exists() else None
    fetch = _OF_PROJECT.get(prefix)
    row = fetch(key) if fetch else None
    try:
        if row is None or not can(actor, "project.view", row):
            return None
        project = row if isinstance(row, Project) else getattr(row, "project", None) or row.model.project
        return role_in(actor, project)
    except (RegistryError, AttributeError):
        return None


def _site_scope(actor: Actor) -> str | None:
    if actor.user is None or not can(actor, "site.view"):
        return None
    return actor.user.site_role
