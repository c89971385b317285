"""Code in versions: which files are code, whether the project lets nodes run them, and who let a version.

The permission stands on the version and travels in the desired state; a node refuses code without it. Setting a project
to forbid code stops new deployments; what is deployed stays until it is changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import ValidationFailed
from registry.models import CodeFormats, ConfigRevision, ModelVersion, Project
from registry.services import audit
from registry.services.permissions import require
from serving_node.contract.code_formats import CODE_TEXTS, CodeKind, code_parts
from serving_node.contract.model_config import ModelConfig, parse_json

_MOST_NAMED = 5


def code_files(paths: Iterable[str], config: ModelConfig) -> list[dict[str, str]]:
    """Return the parts of a version that are code under a config, as ``{"path", "why"}``."""
    return [{"path": part.path, "why": _why(part.kind)} for part in code_parts(paths, config)]


def _why(kind: CodeKind) -> str:
    text = CODE_TEXTS[kind]
    return _(text)


def code_sentence(project: Project, files: Sequence[dict[str, Any]]) -> str:
    """Return the sentence why a project does not take these files; empty when it takes them."""
    if not files or project.code_formats != CodeFormats.FORBID:
        return ""
    named = ", ".join(f"{file['path']} ({file['why']})" for file in files[:_MOST_NAMED])
    if len(files) > _MOST_NAMED:
        named = _("%(named)s and %(count)d more") % {"named": named, "count": len(files) - _MOST_NAMED}
    return _("Project “%(project)s” does not allow code in versions, and this one has: %(files)s.") % {
        "project": project.slug,
        "files": named,
    }


def code_problem(version: ModelVersion, config: ConfigRevision) -> str:
    """Return the sentence why a version must not be served under a config; empty when it may."""
    project = version.model.project
    if project.code_formats != CodeFormats.FORBID:
        return ""
    paths = version.files.values_list("path", flat=True)
    return code_sentence(project, code_files(paths, parse_json(config.body)))


def code_permit(
    *, version: ModelVersion, config: ModelConfig, permitted_by: uuid.UUID | None = None, actor: Actor
) -> None:
    """Note that nodes may run the version's code, with who let them; nothing happens without code, or a second time.

    ``permitted_by`` is who approved it where the system acts later.

    Raises:
        ValidationFailed: the project does not allow it.
    """
    files = code_files(version.files.values_list("path", flat=True), config)
    known = {file["path"] for file in version.code_files}
    new = [file for file in files if file["path"] not in known]
    if not new:
        return
    project = Project.objects.get(models=version.model_id)
    problem = code_sentence(project, files)
    if problem:
        raise ValidationFailed(problem, errors=[{"field": "version", "message": problem}])
    with transaction.atomic():
        version.code_files = [*version.code_files, *new]
        version.code_permitted_by_id = actor.user_id or permitted_by or version.author_id
        version.code_permitted_at = timezone.now()
        version.save(update_fields=["code_files", "code_permitted_by", "code_permitted_at"])
        audit.record(actor=actor, action="version.permit_code", obj=version, after={"files": new})
        telemetry.publish_on_commit(f"version:{version.id}", project=project.id)


def project_code_formats(
    *, project: Project, code_formats: str | None = None, pickles_known_only: bool | None = None, actor: Actor
) -> Project:
    """Say whether versions may bring code, and whether pickles may import what nobody has judged.

    Project administrators only. What is deployed stays as it is.
    """
    require(actor, "project.policy", project)
    if code_formats is not None and code_formats not in CodeFormats.values:
        message = _("Code formats are “allow” or “forbid”.")
        raise ValidationFailed(message, errors=[{"field": "code_formats", "message": message}])
    wanted = {"code_formats": code_formats, "pickles_known_only": pickles_known_only}
    with transaction.atomic():
        locked = Project.objects.select_for_update().get(pk=project.pk)
        changes = {
            name: value for name, value in wanted.items() if value is not None and value != getattr(locked, name)
        }
        if changes:
            Project.objects.filter(pk=project.pk).update(**changes)
            audit.record(
                actor=actor,
                action="project.code_formats",
                obj=project,
                before={name: getattr(locked, name) for name in changes},
                after=changes,
            )
            telemetry.publish_on_commit(f"project:{project.id}", project=project.id)
    project.refresh_from_db()
    return project
