"""Aliases: names that people and programs use instead of a version's number."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.aliases import alias_problem
from registry.domain.storable import storable_text
from registry.errors import NotFound, PermissionDenied, QuotaExceeded, StaleWrite, ValidationFailed
from registry.models import Alias, ModelVersion, RegisteredModel, Transition, VersionState
from registry.services import audit
from registry.services.permissions import require

MAX_ALIASES = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """The alias as the caller read it; ``version_id`` None: there was none."""

    version_id: uuid.UUID | None
    is_protected: bool = False


def alias_set(
    *,
    model: RegisteredModel,
    name: str,
    version: ModelVersion,
    is_protected: bool | None = None,
    comment: str = "",
    seen: Seen | None = None,
    actor: Actor,
) -> tuple[Alias, bool]:
    """Point an alias at a ready version of the model; return it and whether it was made.

    ``is_protected`` None leaves the protection as it is (a new alias has none). ``seen`` refuses the move when the
    alias is not any more as the caller saw it.

    Raises:
        PermissionDenied: ``alias.move``, and ``alias.move_protected`` for an alias that is protected or becomes it.
        ValidationFailed: no name for an alias, or the version is not a ready one of this model.
        StaleWrite: somebody moved it since ``seen``.
        QuotaExceeded: the model has ``MAX_ALIASES`` already.

    Concurrency: the row of the model is locked, then that of the version; archiving locks the latter too.
    """
    require(actor, "alias.move", model)
    problem = alias_problem(name)
    if problem:
        raise ValidationFailed(problem, errors=[{"field": "name", "message": problem}])
    if actor.user_id is None:
        raise PermissionDenied(_("An alias needs somebody who moved it."))
    with transaction.atomic():
        alias = _locked(model, name, seen)
        was_protected = alias is not None and alias.is_protected
        protects = was_protected if is_protected is None else is_protected
        if was_protected or protects:
            require(actor, "alias.move_protected", model)
        _require_ready(model, version)
        before = {"version": alias.version.number, "is_protected": alias.is_protected} if alias is not None else None
        after = {"version": version.number, "is_protected": protects}
        if alias is not None and before == after:
            return alias, False
        if alias is None and model.aliases.count() >= MAX_ALIASES:
            raise QuotaExceeded(
                _("A model has at most %(limit)d aliases; delete one that nobody uses.") % {"limit": MAX_ALIASES}
            )
        made = alias is None
        alias = alias or Alias(model=model, name=name)
        alias.version, alias.is_protected = version, protects
        alias.moved_by_id, alias.moved_at = actor.user_id, timezone.now()
        alias.save()
        comment = storable_text(comment)
        if before is None or before["version"] != version.number:
            _note(alias, before["version"] if before else None, version.number, comment, actor)
        audit.record(
            actor=actor,
            action="alias.set",
            obj=alias,
            before=before,
            after={"name": name, **after, "comment": comment},
        )
        _publish(model, alias)
    return alias, made


def alias_delete(*, model: RegisteredModel, name: str, seen: Seen | None = None, actor: Actor) -> None:
    """Delete an alias. Deployments keep the versions that they were given by it.

    Raises:
        NotFound: there is none of that name; ``latest`` cannot be deleted.
        PermissionDenied: ``alias.move``, and ``alias.move_protected`` for a protected one.
        StaleWrite: somebody moved it since ``seen``.
    """
    require(actor, "alias.move", model)
    with transaction.atomic():
        alias = _locked(model, name, seen)
        if alias is None:
            raise NotFound(_("“%(model)s” has no alias “%(name)s”.") % {"model": model.slug, "name": name})
        if alias.is_protected:
            require(actor, "alias.move_protected", model)
        before = {"name": name, "version": alias.version.number, "is_protected": alias.is_protected}
        _note(alias, alias.version.number, None, _("deleted"), actor)
        audit.record(actor=actor, action="alias.delete", obj=alias, before=before)
        _publish(model, alias)
        alias.delete()


def _locked(model: RegisteredModel, name: str, seen: Seen | None) -> Alias | None:
    RegisteredModel.objects.select_for_update().get(pk=model.pk)
    alias = Alias.objects.filter(model=model, name=name).select_related("version", "model").first()
    now = Seen(alias.version_id, alias.is_protected) if alias is not None else Seen(None)
    if seen is not None and seen != now:
        raise StaleWrite(_("The alias was changed since you read it; read it again."))
    return alias


def _require_ready(model: RegisteredModel, version: ModelVersion) -> None:
    rows = ModelVersion.objects.select_for_update().filter(pk=version.pk, model=model)
    state = rows.values_list("state", flat=True).first()
    if state == VersionState.READY:
        return
    if state is None:
        message = _("This version is not one of “%(model)s”.") % {"model": model.slug}
    else:
        message = _("%(version)s is %(state)s; an alias points at a ready version.") % {
            "version": str(version),
            "state": state,
        }
    raise ValidationFailed(message, errors=[{"field": "version", "message": message}])


def _note(alias: Alias, before: int | None, after: int | None, cause: str, actor: Actor) -> None:
    Transition.objects.create(
        object_type="alias",
        object_id=alias.pk,
        from_state=str(before or ""),
        to_state=str(after or ""),
        cause=cause,
        actor_name=actor.name[:200],
    )


def _publish(model: RegisteredModel, alias: Alias) -> None:
    telemetry.publish_on_commit(f"model:{model.id}", project=model.project_id)
    telemetry.publish_on_commit(f"version:{alias.version_id}", project=model.project_id)
