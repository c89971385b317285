"""Remembering what sets of declarative files own."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.errors import Conflict, QuotaExceeded, ValidationFailed
from registry.models import ApplySet, Project
from registry.services import audit
from registry.services.permissions import require

MAX_MEMBERS = 10_000
MAX_SETS = 200


def apply_set_record(
    *, project: Project | None, name: str, members: Sequence[dict[str, str]], apply_set: ApplySet | None, actor: Actor
) -> ApplySet:
    """Note what a set owns now; ``apply_set`` is the row there is (None: there is none yet).

    Raises:
        ValidationFailed: too many members.
        Conflict: somebody made a set of this name meanwhile.
        QuotaExceeded: there are too many sets.
    """
    if project is None:
        require(actor, "site.environments")
    else:
        require(actor, "model.write", project)
    if len(members) > MAX_MEMBERS:
        raise ValidationFailed(_("A set owns at most %(most)d things.") % {"most": MAX_MEMBERS})
    rows = sorted(({"kind": row["kind"], "name": row["name"]} for row in members), key=lambda r: (r["kind"], r["name"]))
    try:
        with transaction.atomic():
            if apply_set is None:
                if ApplySet.objects.filter(project=project).count() >= MAX_SETS:
                    raise QuotaExceeded(_("There are %(most)d sets already.") % {"most": MAX_SETS})
                apply_set = ApplySet(project=project, name=name)
            before = len(apply_set.members)
            apply_set.members = rows
            apply_set.applied_by_id = actor.user_id
            apply_set.applied_at = timezone.now()
            apply_set.save()
            audit.record(
                actor=actor,
                action="apply_set.record",
                obj=apply_set,
                before={"members": before},
                after={"members": len(rows)},
            )
            _publish(apply_set)
    except IntegrityError:
        raise Conflict(_("Somebody made a set “%(name)s” meanwhile; apply again.") % {"name": name}) from None
    return apply_set


def apply_set_forget(*, apply_set: ApplySet, actor: Actor) -> None:
    """Forget a set. What it owned stays as it is."""
    if apply_set.project is None:
        require(actor, "site.environments")
    else:
        require(actor, "model.write", apply_set.project)
    with transaction.atomic():
        audit.record(actor=actor, action="apply_set.forget", obj=apply_set)
        _publish(apply_set)
        apply_set.delete()


def _publish(apply_set: ApplySet) -> None:
    """Tell open pages after the commit."""
    project = apply_set.project_id
    telemetry.publish_on_commit("fleet" if project is None else f"project:{project}", project=project)
