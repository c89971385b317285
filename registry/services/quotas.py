"""Quotas of projects: who sets them, and the refusal when one is reached."""

from __future__ import annotations

import uuid

from django.db import transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import QuotaExceeded, ValidationFailed
from registry.models import Fleet, Project
from registry.selectors.quotas import bytes_used, fleets_used, nodes_used, versions_used
from registry.services import audit
from registry.services.permissions import require

MAX_BYTES = 2**53
MAX_COUNT = 10**9


def quota_set(
    *,
    project: Project,
    bytes: int | None = None,
    versions: int | None = None,
    nodes: int | None = None,
    actor: Actor,
) -> Project:
    """Change limits; None leaves one. A limit below what is used refuses what is new and takes nothing away.

    Raises:
        PermissionDenied: ``site.quotas``.
        ValidationFailed: a limit is negative or out of all proportion.
    """
    require(actor, "site.quotas")
    wanted = {"bytes": bytes, "versions": versions, "nodes": nodes}
    for name, value in wanted.items():
        most = MAX_BYTES if name == "bytes" else MAX_COUNT
        if value is not None and not 0 <= value <= most:
            message = _("A limit is a whole number from 0 to %(most)d.") % {"most": most}
            raise ValidationFailed(message, errors=[{"field": name, "message": message}])
    with transaction.atomic():
        held = Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        before = _limits(held)
        after = {**before, **{name: value for name, value in wanted.items() if value is not None}}
        if before == after:
            return held
        held.quota_bytes, held.quota_versions, held.quota_nodes = after["bytes"], after["versions"], after["nodes"]
        held.save(update_fields=["quota_bytes", "quota_versions", "quota_nodes"])
        audit.record(actor=actor, action="project.quotas", obj=held, before=before, after=after)
        telemetry.publish_on_commit(f"project:{held.pk}", project=held.pk)
    return held


def require_bytes(project_id: uuid.UUID, length: int) -> None:
    """Hold the project and do nothing when ``length`` bytes more fit.

    Raises:
        QuotaExceeded: they do not.
    """
    project = _held(project_id)
    used = bytes_used(project)
    if used + length > project.quota_bytes:
        raise QuotaExceeded(
            _("The project has room for %(room)d bytes more of its %(limit)d; this takes %(length)d. %(advice)s")
            % {
                "room": max(0, project.quota_bytes - used),
                "limit": project.quota_bytes,
                "length": length,
                "advice": _advice(),
            }
        )


def require_version(project_id: uuid.UUID) -> None:
    """Hold the project and do nothing when it may have one version more.

    Raises:
        QuotaExceeded: it may not.
    """
    project = _held(project_id)
    if versions_used(project) >= project.quota_versions:
        raise QuotaExceeded(
            _("The project has all of the %(limit)d versions that it may have. %(advice)s")
            % {"limit": project.quota_versions, "advice": _advice()}
        )


def require_nodes(project_id: uuid.UUID, fleet: Fleet) -> None:
    """Hold the project and do nothing when it may deploy on ``fleet`` too. Fleets that it uses already always may.

    Raises:
        QuotaExceeded: with the nodes of the fleet it would use more than it may.
    """
    project = _held(project_id)
    fleets = fleets_used(project)
    if fleet in fleets:
        return
    needed = len(nodes_used([*fleets, fleet]))
    if needed > project.quota_nodes:
        raise QuotaExceeded(
            _("With fleet %(fleet)s the project would use %(needed)d nodes; it may use %(limit)d. %(advice)s")
            % {
                "fleet": fleet.slug,
                "needed": needed,
                "limit": project.quota_nodes,
                "advice": _("Take it off another fleet, or ask a site administrator for more."),
            }
        )


def _advice() -> str:
    return _("Delete models that nobody needs, or ask a site administrator for more.")


def _held(project_id: uuid.UUID) -> Project:
    return Project.objects.select_for_update(no_key=True).get(pk=project_id)


def _limits(project: Project) -> dict[str, int]:
    return {"bytes": project.quota_bytes, "versions": project.quota_versions, "nodes": project.quota_nodes}
