"""Registered models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.model_facts import link_problems, task_problem
from registry.errors import Conflict, PermissionDenied, ValidationFailed
from registry.models import (
    ACTIVE_PHASES,
    Alias,
    ApprovalRequest,
    ConfigRevision,
    Deployment,
    Membership,
    ModelCard,
    ModelState,
    ModelVersion,
    Project,
    RegisteredModel,
    Rollout,
    Route,
    ScratchUnit,
    Upload,
    User,
)
from registry.selectors.models import model_impact
from registry.selectors.protection import WAITING
from registry.services import audit
from registry.services.fields import require_labels, require_slug
from registry.services.permissions import require
from registry.services.staging import staged_remove
from registry.services.transition import move


def model_create(
    *,
    project: Project,
    slug: str,
    description: str = "",
    tags: Mapping[str, str] | None = None,
    task: str = "",
    links: Sequence[Mapping[str, str]] = (),
    actor: Actor,
) -> RegisteredModel:
    """Create a model. ``slug``: letters, digits, ``-`` and ``_``, at most 80; it is the default served name.

    Raises:
        ValidationFailed: a bad name, or bad tags, task or links.
        Conflict: the project has a model of that name.
    """
    require(actor, "model.write", project)
    require_slug(slug, limit=80)
    labels = require_labels(dict(tags or {}), field="tags")
    if actor.user_id is None:
        raise PermissionDenied(_("A model needs an owner."))
    try:
        with transaction.atomic():
            model = RegisteredModel.objects.create(
                project=project,
                slug=slug,
                description=description,
                tags=labels,
                task=_task(task),
                links=_links(links),
                owner_id=actor.user_id,
            )
            audit.record(actor=actor, action="model.create", obj=model, after={"slug": slug, "tags": labels})
            telemetry.publish_on_commit(f"project:{project.id}", project=project.id)
    except IntegrityError:
        raise Conflict(
            _("There is a model “%(slug)s” in this project already.") % {"slug": slug},
            errors=[{"field": "slug", "message": _("This name is taken.")}],
        ) from None
    return model


def model_get_or_create(*, project: Project, slug: str, actor: Actor) -> tuple[RegisteredModel, bool]:
    """Return the model of that name, made if need be, and whether it was made."""
    require(actor, "project.view", project)
    for _attempt in range(2):
        model = RegisteredModel.objects.filter(project=project, slug=slug).first()
        if model is not None:
            return model, False
        try:
            return model_create(project=project, slug=slug, actor=actor), True
        except Conflict:
            continue  # somebody made it in between
    return RegisteredModel.objects.get(project=project, slug=slug), False


def model_update(
    *,
    model: RegisteredModel,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
    task: str | None = None,
    links: Sequence[Mapping[str, str]] | None = None,
    owner: User | None = None,
    actor: Actor,
) -> RegisteredModel:
    """Change what is said about a model; None leaves it. Its owner gives it away, or an administrator does.

    Raises:
        ValidationFailed: bad tags, task or links, or an owner who is not in the project.
        PermissionDenied: ``model.write``; for another owner, of whom is neither owner nor ``model.manage``.
    """
    require(actor, "model.write", model)
    before = _facts(model)
    if description is not None:
        model.description = description
    if tags is not None:
        model.tags = require_labels(dict(tags), field="tags")
    if task is not None:
        model.task = _task(task)
    if links is not None:
        model.links = _links(links)
    if owner is not None and owner.pk != model.owner_id:
        if actor.user_id != model.owner_id:
            require(actor, "model.manage", model)
        model.owner = _member(model, owner)
    with transaction.atomic():
        model.save(update_fields=["description", "tags", "task", "links", "owner"])
        audit.record(actor=actor, action="model.update", obj=model, before=before, after=_facts(model))
        _publish(model)
    return model


def model_archive(*, model: RegisteredModel, actor: Actor) -> None:
    """Put a model away that nothing serves: active -> archived. It takes no versions and no deployments then.

    Raises:
        Conflict: a deployment uses it, or asks for approval to.
    """
    require(actor, "model.write", model)
    with transaction.atomic():
        RegisteredModel.objects.select_for_update(no_key=True).get(pk=model.pk)
        _require_unused(model)
        _move(model, ModelState.ARCHIVED, actor)


def model_restore(*, model: RegisteredModel, actor: Actor) -> None:
    """Bring an archived model back: archived -> active."""
    require(actor, "model.write", model)
    with transaction.atomic():
        _move(model, ModelState.ACTIVE, actor)


def model_delete(*, model: RegisteredModel, actor: Actor) -> None:
    """Delete an archived model with its versions, configs, card, aliases and ended deployments.

    What its files held is released; collection takes it after its grace time. The audit log keeps its history.

    Raises:
        PermissionDenied: ``model.manage``.
        Conflict: it is not archived, a deployment uses it, or a version is being measured.
    """
    require(actor, "model.manage", model)
    with transaction.atomic():
        RegisteredModel.objects.select_for_update().get(pk=model.pk)
        model.refresh_from_db(fields=["state"])
        if model.state != ModelState.ARCHIVED:
            raise Conflict(_("Archive the model first; only an archived one is deleted."))
        _require_unused(model)
        if ScratchUnit.objects.filter(version__model=model).exists():
            raise Conflict(_("A version of this model is being measured; wait for the end."))
        impact = model_impact(model)
        audit.record(actor=actor, action="model.delete", obj=model, before={"slug": model.slug, **impact.to_json()})
        _delete_rows(model)
        _publish(model)


def _delete_rows(model: RegisteredModel) -> None:
    uploads = list(Upload.objects.filter(version__model=model).values_list("id", flat=True))
    Deployment.objects.filter(model=model).delete()
    Alias.objects.filter(model=model).delete()
    ModelCard.objects.filter(model=model).delete()
    ModelVersion.objects.filter(model=model).delete()
    ConfigRevision.objects.filter(model=model).delete()
    model_id = model.pk
    model.delete()
    model.pk = model_id
    for upload in uploads:
        transaction.on_commit(partial(staged_remove, upload))


def _require_unused(model: RegisteredModel) -> None:
    used = Route.objects.filter(deployment__model=model).select_related("deployment__fleet").first()
    if used is not None:
        raise Conflict(_("%(deployment)s serves this model; undeploy it first.") % {"deployment": used.deployment})
    active = Rollout.objects.filter(deployment__model=model, phase__in=ACTIVE_PHASES).first()
    if active is not None:
        raise Conflict(_("A rollout of this model is under way; wait for its end."))
    waiting = ApprovalRequest.objects.filter(deployment__model=model, state__in=WAITING)
    if waiting.exists():
        raise Conflict(_("A change of this model waits for approval; withdraw the request first."))


def _move(model: RegisteredModel, to: str, actor: Actor) -> None:
    before = move(model, "state", to, cause=to, actor=actor)
    audit.record(actor=actor, action=f"model.{to}", obj=model, before={"state": before}, after={"state": to})
    _publish(model)


def _facts(model: RegisteredModel) -> dict[str, Any]:
    return {
        "description": model.description,
        "tags": model.tags,
        "task": model.task,
        "links": model.links,
        "owner": model.owner.username,
    }


def _task(task: str) -> str:
    problem = task_problem(task)
    if problem:
        raise ValidationFailed(problem, errors=[{"field": "task", "message": problem}])
    return task


def _links(links: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    errors = link_problems(links)
    if errors:
        raise ValidationFailed(errors[0]["message"], errors=errors)
    return [{"label": link["label"].strip(), "url": link["url"]} for link in links]


def _member(model: RegisteredModel, owner: User) -> User:
    if owner.is_active and Membership.objects.filter(project_id=model.project_id, user=owner).exists():
        return owner
    message = _("“%(name)s” is not an active member of this project.") % {"name": owner.username}
    raise ValidationFailed(message, errors=[{"field": "owner", "message": message}])


def _publish(model: RegisteredModel) -> None:
    telemetry.publish_on_commit(f"model:{model.pk}", project=model.project_id)
    telemetry.publish_on_commit(f"project:{model.project_id}", project=model.project_id)
