"""Registered models."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import Conflict, PermissionDenied
from registry.models import Project, RegisteredModel
from registry.services import audit
from registry.services.fields import require_labels, require_slug
from registry.services.permissions import require


def model_create(
    *, project: Project, slug: str, description: str = "", tags: Mapping[str, str] | None = None, actor: Actor
) -> RegisteredModel:
    """Create a model. ``slug``: letters, digits, ``-`` and ``_``, at most 80; it is the default served name.

    Raises:
        ValidationFailed: a bad name.
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
                project=project, slug=slug, description=description, tags=labels, owner_id=actor.user_id
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
    *, model: RegisteredModel, description: str | None = None, tags: Mapping[str, str] | None = None, actor: Actor
) -> RegisteredModel:
    """Change description or tags; None leaves them."""
    require(actor, "model.write", model)
    before = {"description": model.description, "tags": model.tags}
    if description is not None:
        model.description = description
    if tags is not None:
        model.tags = require_labels(dict(tags), field="tags")
    with transaction.atomic():
        model.save(update_fields=["description", "tags"])
        audit.record(
            actor=actor,
            action="model.update",
            obj=model,
            before=before,
            after={"description": model.description, "tags": model.tags},
        )
        telemetry.publish_on_commit(f"model:{model.id}", project=model.project_id)
    return model
