"""New config revisions made of old ones: going back, copying, and what differs as text."""

from __future__ import annotations

import difflib
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.models import ConfigRevision, RegisteredModel, VersionState
from registry.services.configs import config_create, config_pbtxt
from registry.services.permissions import require

# They follow from the version that serves, so a copy takes them from its own model's.
_OF_THE_VERSION = ("input", "output", "backend", "platform", "default_model_filename")


def config_revert(
    *, model: RegisteredModel, revision: ConfigRevision, comment: str = "", actor: Actor
) -> ConfigRevision:
    """Store the content of an earlier revision as the next one; the newest again when it has that content already.

    Raises:
        ValidationFailed: it no longer fits the model's newest version; ``errors`` names the fields.
    """
    said = comment.strip() or _("Back to config %(number)d.") % {"number": revision.number}
    return config_create(model=model, body=revision.body, comment=said, parent=revision, actor=actor)


def config_copy(*, source: ConfigRevision, target: RegisteredModel, comment: str = "", actor: Actor) -> ConfigRevision:
    """Store a revision of one model as the next revision of another, under its name.

    Where the other model has a ready version, inputs, outputs and backend are that version's; the rest is copied.

    Raises:
        ValidationFailed: it does not fit the other model; ``errors`` names the fields.
    """
    require(actor, "project.view", source.model)
    left_out: tuple[str, ...] = ("name",)
    if target.pk != source.model_id and target.versions.filter(state=VersionState.READY).exists():
        left_out += _OF_THE_VERSION
    body: dict[str, Any] = {key: value for key, value in source.body.items() if key not in left_out}
    origin = source.model.slug
    if source.model.project_id != target.project_id:
        origin = f"{source.model.project.slug}/{origin}"
    said = comment.strip() or _("Copied from %(model)s config %(number)d.") % {
        "model": origin,
        "number": source.number,
    }
    parent = source if source.model_id == target.pk else None
    return config_create(model=target, body=body, comment=said, parent=parent, actor=actor)


def config_text_diff(before: ConfigRevision, after: ConfigRevision) -> str:
    """Return the unified diff of two revisions as config.pbtxt; empty when they are equal."""
    old, new = (config_pbtxt(one.body).splitlines() for one in (before, after))
    old_name, new_name = (f"{one.model.slug} config {one.number}" for one in (before, after))
    return "\n".join(difflib.unified_diff(old, new, old_name, new_name, lineterm=""))
