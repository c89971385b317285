"""Code in versions: whether the project lets nodes run it, who let a version, and who took that back.

The permission stands on the version and travels in the desired state; a node refuses code without it, and unloads what
runs already. Setting a project to forbid code stops new deployments; what is deployed stays until somebody withdraws
the permission.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import signals, telemetry
from registry.domain.actors import Actor
from registry.errors import Conflict, PermissionDenied, ValidationFailed
from registry.models import CodeFormats, ConfigRevision, Deployment, ModelVersion, Project, ScratchUnit
from registry.selectors.code import code_files, code_withdrawn_sentence, versions_permitted
from registry.selectors.fleet import nodes_of
from registry.services import audit
from registry.services.nodes import node_generation_raise
from registry.services.permissions import require
from serving_node.contract.model_config import ModelConfig, parse_json

_MOST_NAMED = 5
MAX_REASON = 2000


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
    withdrawn = code_withdrawn_sentence(version)
    if project.code_formats != CodeFormats.FORBID and not withdrawn:
        return ""
    files = code_files(version.files.values_list("path", flat=True), parse_json(config.body))
    return code_sentence(project, files) or (withdrawn if files else "")


def code_permit(
    *,
    version: ModelVersion,
    config: ModelConfig,
    permitted_by: uuid.UUID | None = None,
    is_approved: bool = False,
    actor: Actor,
) -> None:
    """Note that nodes may run the version's code, with who let them; nothing happens without code, or a second time.

    ``permitted_by`` is who approved it where the system acts later. ``is_approved``: an approval named this code.

    Raises:
        ValidationFailed: the project does not allow it, or not without an approval; or the permission was withdrawn.
    """
    files = code_files(version.files.values_list("path", flat=True), config)
    known = {file["path"] for file in version.code_files}
    new = [file for file in files if file["path"] not in known]
    if not files or (not new and version.code_permitted_at is not None):
        return
    project = Project.objects.get(models=version.model_id)
    problem = code_sentence(project, files) or code_withdrawn_sentence(version)
    if not problem and project.code_formats == CodeFormats.APPROVE and not is_approved:
        text = _("Project “%(project)s” lets nodes run code once an approval has named it: deploy the version first.")
        problem = text % {"project": project.slug}
    if problem:
        raise ValidationFailed(problem, errors=[{"field": "version", "message": problem}])
    with transaction.atomic():
        _permit(version, [*version.code_files, *new], actor.user_id or permitted_by or version.author_id)
        audit.record(actor=actor, action="version.permit_code", obj=version, after={"files": new or files})
        telemetry.publish_on_commit(f"version:{version.id}", project=project.id)


def code_withdraw(*, version: ModelVersion, reason: str, actor: Actor) -> None:
    """Take the permission for a version's code back: nodes unload what runs of it, and it is deployed nowhere anew.

    It stays so until somebody permits it again (``code_permit_again``), whatever approvals say.

    Raises:
        ValidationFailed: no reason.
        Conflict: there is no permission.
    """
    require(actor, "version.quarantine", version)
    words = _reason(reason)
    with transaction.atomic():
        held = _locked(version)
        if held.code_permitted_at is None:
            raise Conflict(_("Nodes may not run any code of version %(number)s.") % {"number": held.number})
        _withdraw([held], words, actor)
    version.refresh_from_db()


def code_withdraw_all(*, project: Project, reason: str, actor: Actor) -> int:
    """Take the permission for the code of every version of a project back; return of how many.

    Project administrators only. Forbid code, too, or the next version gets its own permission.

    Raises:
        ValidationFailed: no reason.
    """
    require(actor, "project.policy", project)
    words = _reason(reason)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        ids = versions_permitted(project).order_by().values("pk")
        versions = list(ModelVersion.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
        _withdraw(versions, words, actor)
        telemetry.publish_on_commit(f"project:{project.id}", project=project.id)
    return len(versions)


def code_permit_again(*, version: ModelVersion, actor: Actor) -> None:
    """Let nodes run a version's code whose permission was withdrawn: where it is deployed they load it again.

    Project administrators only, because no approval names it once more.

    Raises:
        Conflict: nobody withdrew it.
        ValidationFailed: the project forbids code.
    """
    require(actor, "project.policy", version)
    with transaction.atomic():
        held = _locked(version)
        if held.code_withdrawn_at is None:
            raise Conflict(_("The permission for this version's code was not withdrawn."))
        problem = code_sentence(version.model.project, held.code_files)
        if problem:
            raise ValidationFailed(problem, errors=[{"field": "version", "message": problem}])
        if actor.user_id is None:
            raise PermissionDenied(_("A permission needs somebody who gives it."))
        before = {"reason": held.code_withdrawn_reason}
        held.code_withdrawn_at, held.code_withdrawn_by_id, held.code_withdrawn_reason = None, None, ""
        held.save(update_fields=["code_withdrawn_at", "code_withdrawn_by", "code_withdrawn_reason"])
        _permit(held, held.code_files, actor.user_id)
        after = {"files": held.code_files}
        audit.record(actor=actor, action="version.permit_code", obj=held, before=before, after=after)
        _tell([held])
    version.refresh_from_db()


def _locked(version: ModelVersion) -> ModelVersion:
    return ModelVersion.objects.select_for_update(of=("self",), no_key=True).select_related("model").get(pk=version.pk)


def _permit(version: ModelVersion, files: list[dict[str, str]], user_id: uuid.UUID) -> None:
    version.code_files = files
    version.code_permitted_by_id = user_id
    version.code_permitted_at = timezone.now()
    version.save(update_fields=["code_files", "code_permitted_by", "code_permitted_at"])


def _withdraw(versions: Iterable[ModelVersion], reason: str, actor: Actor) -> None:
    now = timezone.now()
    found = list(versions)
    for version in found:
        before = {"permitted_by": str(version.code_permitted_by_id), "files": version.code_files}
        version.code_permitted_at, version.code_permitted_by_id = None, None
        version.code_withdrawn_at, version.code_withdrawn_by_id = now, actor.user_id
        version.code_withdrawn_reason = reason
        version.save(
            update_fields=[
                "code_permitted_at",
                "code_permitted_by",
                "code_withdrawn_at",
                "code_withdrawn_by",
                "code_withdrawn_reason",
            ]
        )
        after = {"reason": reason}
        audit.record(actor=actor, action="version.withdraw_code", obj=version, before=before, after=after)
    _tell(found)


def _tell(versions: Sequence[ModelVersion]) -> None:
    """Let the nodes that have a part in the versions hear of it, and the pages that show them."""
    deployments = list(Deployment.objects.filter(routes__version__in=versions).distinct().select_related("fleet"))
    nodes = set(ScratchUnit.objects.filter(version__in=versions).values_list("node_id", flat=True))
    if deployments:
        nodes |= set(nodes_of(*{one.fleet_id: one.fleet for one in deployments}.values()).values_list("id", flat=True))
    node_generation_raise(nodes)
    for deployment in deployments:
        signals.send_deployment_touched(deployment.pk)
        telemetry.publish_on_commit(f"deployment:{deployment.pk}", project=deployment.project_id)
    for version in versions:
        telemetry.publish_on_commit(f"version:{version.pk}", project=version.model.project_id)


def _reason(text: str) -> str:
    words = text.strip()
    if not words or len(words) > MAX_REASON:
        message = _("At most 2,000 characters.") if words else _("Say why the permission is withdrawn.")
        raise ValidationFailed(message, errors=[{"field": "reason", "message": message}])
    return words


def project_code_formats(
    *, project: Project, code_formats: str | None = None, pickles_known_only: bool | None = None, actor: Actor
) -> Project:
    """Say whether versions may bring code, and whether pickles may import what nobody has judged.

    Project administrators only. What is deployed stays as it is.
    """
    require(actor, "project.policy", project)
    if code_formats is not None and code_formats not in CodeFormats.values:
        message = _("Code formats are “allow”, “approve” or “forbid”.")
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
