"""Aliases of a model, and versions by whatever names them: a number, an id, an alias, ``latest``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.aliases import LATEST, is_alias
from registry.errors import NotFound, ValidationFailed
from registry.models import Alias, AuditEvent, Deployment, ModelVersion, Project, RegisteredModel, Route, VersionState
from registry.selectors.audit import audit_visible_to
from registry.selectors.models import model_get
from registry.selectors.versions import version_by_id, version_by_number, version_numbered

MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AliasMove:
    """What setting an alias would mean. ``before`` is None for a new one.

    ``serving_before`` and ``serving_after`` are deployments that route to the version on either side; moving an alias
    changes none of them.
    """

    name: str
    before: ModelVersion | None
    after: ModelVersion
    is_protected: bool
    serving_before: tuple[Deployment, ...]
    serving_after: tuple[Deployment, ...]

    @property
    def is_noop(self) -> bool:
        """Whether it points there already."""
        return self.before is not None and self.before.pk == self.after.pk


def aliases_of(model: RegisteredModel) -> QuerySet[Alias]:
    """Return the stored aliases of a model, by name. ``latest`` is none of them."""
    return model.aliases.select_related("version", "moved_by", "model").order_by("name")


def aliases_moved(project: Project) -> QuerySet[Alias]:
    """Return the aliases of a project, those that moved last first."""
    return Alias.objects.filter(model__project=project).select_related("version", "model").order_by("-moved_at")


def alias_get(model: RegisteredModel, name: str) -> Alias:
    """Return an alias; ``latest`` as a row that is not stored.

    Raises:
        NotFound: there is none of that name, or no version is ready yet.
    """
    if name == LATEST:
        version = latest_version(model)
        if version is None:
            raise NotFound(_("“%(model)s” has no ready version yet.") % {"model": model.slug})
        at = version.ready_at or version.created_at
        return Alias(model=model, name=LATEST, version=version, moved_by=version.author, moved_at=at)
    alias = aliases_of(model).filter(name=name).first() if is_alias(name) else None
    if alias is None:
        raise NotFound(_("“%(model)s” has no alias “%(name)s”.") % {"model": model.slug, "name": name})
    return alias


def latest_version(model: RegisteredModel) -> ModelVersion | None:
    """Return the ready version with the highest number."""
    ready = model.versions.filter(state=VersionState.READY).select_related("model__project", "author")
    return ready.order_by("-number").first()


def version_named(model: RegisteredModel, reference: str | int) -> ModelVersion:
    """Return the version that a number, an id or an alias names.

    Raises:
        NotFound: there is none.
    """
    text = str(reference)
    number = _number(text)
    if number is not None:
        return version_by_number(model, number)
    if is_alias(text):
        return version_by_id(model, alias_get(model, text).version_id)
    try:
        return version_by_id(model, uuid.UUID(text))
    except ValueError:
        raise NotFound(_("“%(model)s” has no such version.") % {"model": model.slug}) from None


def version_seen(actor: Actor, project: str, model: str, reference: str) -> ModelVersion:
    """Return the version that ``reference`` names at an address, to be read: a number takes one query.

    Raises:
        NotFound: there is none, or the actor may not see it.
    """
    number = _number(reference)
    version = version_numbered(actor, project, model, number) if number is not None else None
    return version_named(model_get(actor, project, model), reference) if version is None else version


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()):
        return None
    return min(int(text), MAX_NUMBER) if len(text) <= len(str(MAX_NUMBER)) else 0


def alias_numbers(model: RegisteredModel, names: Sequence[str]) -> dict[str, int]:
    """Return the number that each of the names points at; names that are no aliases of the model are left out."""
    wanted = [name for name in names if is_alias(name)]
    found = dict(model.aliases.filter(name__in=wanted).values_list("name", "version__number")) if wanted else {}
    newest = latest_version(model) if LATEST in wanted else None
    if newest is not None:
        found[LATEST] = newest.number
    return {name: number for name, number in found.items() if number}


def with_version_numbers(model: RegisteredModel, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deployment spec in which routes that name a version by alias name it by number.

    What is stored and approved is the number: moving the alias later changes no deployment.

    Raises:
        ValidationFailed: there is no such alias; ``errors`` names the routes.
    """
    routes = spec.get("routes")
    if not isinstance(routes, list):
        return dict(spec)
    errors: list[dict[str, str]] = []
    resolved = [_resolved(model, route, f"routes[{index}].version", errors) for index, route in enumerate(routes)]
    if errors:
        raise ValidationFailed(errors[0]["message"], errors=errors)
    return {**spec, "routes": resolved}


def _resolved(model: RegisteredModel, route: Any, field: str, errors: list[dict[str, str]]) -> Any:
    if not isinstance(route, Mapping) or not isinstance(route.get("version"), str):
        return route
    try:
        number = version_named(model, route["version"]).number
    except NotFound as error:
        errors.append({"field": field, "message": error.message})
        return route
    return {**route, "version": number or 0}


def alias_move(model: RegisteredModel, name: str, after: ModelVersion) -> AliasMove:
    """Return what setting the alias would mean; stores nothing."""
    present = aliases_of(model).filter(name=name).first()
    before = present.version if present is not None else None
    routes = Route.objects.filter(version__in=[one for one in (before, after) if one is not None])
    serving: dict[uuid.UUID, dict[uuid.UUID, Deployment]] = {}
    for route in routes.select_related("deployment__fleet__environment", "deployment__project"):
        serving.setdefault(route.version_id, {})[route.deployment_id] = route.deployment
    return AliasMove(
        name=name,
        before=before,
        after=after,
        is_protected=present.is_protected if present is not None else False,
        serving_before=tuple(serving.get(before.pk, {}).values()) if before is not None else (),
        serving_after=tuple(serving.get(after.pk, {}).values()),
    )


def about_aliases(model: RegisteredModel) -> Q:
    """Return the condition for audit events about aliases of a model, also of those that are deleted."""
    return Q(project_id=model.project_id, object_type="alias", object_label__startswith=f"{model.slug} ")


def alias_events(actor: Actor, model: RegisteredModel) -> QuerySet[AuditEvent]:
    """Return who set and deleted the model's aliases, newest first."""
    return audit_visible_to(actor).filter(about_aliases(model))
