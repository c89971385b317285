"""What a project asks of new versions: how large they may be, and under which licences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.licences import LicencePolicy, policy_problems
from registry.domain.sizes import limit_problems
from registry.errors import ValidationFailed
from registry.models import Project
from registry.services import audit
from registry.services.permissions import require


def size_limits_set(*, project: Project, limits: Mapping[str, Any], actor: Actor) -> Project:
    """Replace the project's own limits; what is left out is as usual. Versions that are ready stay as they are.

    Raises:
        ValidationFailed: a limit that is none; ``errors`` names the field.
    """
    require(actor, "project.policy", project)
    _refuse(limit_problems(limits))
    wanted = {measure: dict(limit) for measure, limit in limits.items() if limit}
    return _set(project, "size_limits", wanted, actor)


def licence_policy_set(*, project: Project, policy: Mapping[str, Any], actor: Actor) -> Project:
    """Replace what the project thinks of licences; what is left out is as usual. Ready versions stay as they are.

    Raises:
        ValidationFailed: a policy that is none; ``errors`` names the field.
    """
    require(actor, "project.policy", project)
    _refuse(policy_problems(policy))
    wanted = LicencePolicy.from_json(policy)
    return _set(project, "licence_policy", wanted.to_json() if wanted != LicencePolicy() else {}, actor)


def _refuse(problems: list[dict[str, str]]) -> None:
    if problems:
        raise ValidationFailed(problems[0]["message"], errors=problems)


def _set(project: Project, field: str, wanted: dict[str, Any], actor: Actor) -> Project:
    with transaction.atomic():
        locked = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        before = getattr(locked, field)
        if before != wanted:
            setattr(locked, field, wanted)
            locked.save(update_fields=[field])
            audit.record(
                actor=actor,
                action=f"project.{field}",
                obj=project,
                before={field: before},
                after={field: wanted},
            )
            telemetry.publish_on_commit(f"project:{project.pk}", project=project.pk)
    project.refresh_from_db()
    return project
