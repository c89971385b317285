"""What sets of declarative files own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import models
from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.domain.actors import Actor
from registry.models import (
    ApplySet,
    AuditEvent,
    ConfigRevision,
    Deployment,
    Environment,
    Fleet,
    Membership,
    ModelCard,
    Project,
    RegisteredModel,
    Rollout,
    Webhook,
)
from registry.selectors.accounts import projects_of
from registry.selectors.fleet import belongs, nodes_joined
from registry.selectors.lookup import one_by_id
from registry.selectors.permissions import can

# What `flotilla apply --prune` deletes; the other kinds hold what cannot be made again.
PRUNABLE = ("Membership", "Environment", "Fleet", "Deployment", "Webhook")


@dataclass(frozen=True, slots=True)
class Touched:
    """Who changed a thing last since the set was applied, what they did, and when."""

    by: str
    action: str
    at: datetime


@dataclass(frozen=True, slots=True)
class OwnedThing:
    """One thing of a set as it is now. ``row`` is None when it is gone.

    ``also_in`` are other sets that own it. ``may_be_pruned``: deleted by ``apply --prune`` once the files name it no
    more, with the consequence ``if_pruned``, a sentence.
    """

    kind: str
    name: str
    row: models.Model | None
    touched: Touched | None
    also_in: tuple[str, ...]
    may_be_pruned: bool
    if_pruned: str

    @property
    def standing(self) -> str:
        """``applied``, ``touched`` (somebody changed it since) or ``gone``."""
        return "gone" if self.row is None else "touched" if self.touched else "applied"


def apply_sets(project: Project | None) -> QuerySet[ApplySet]:
    """Return the sets of a project, or of the site (None), by name."""
    return ApplySet.objects.filter(project=project).select_related("project", "applied_by").order_by("name")


def apply_sets_visible_to(actor: Actor) -> QuerySet[ApplySet]:
    """Return the sets of the actor's projects, and the site's for its administrators; the newest run first."""
    seen = Q(project__in=projects_of(actor))
    if can(actor, "site.environments"):
        seen |= Q(project=None)
    return ApplySet.objects.filter(seen).select_related("project", "applied_by").order_by("-applied_at", "-id")


def apply_set_get(actor: Actor, set_id: uuid.UUID | str) -> ApplySet:
    """Return a set by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    return one_by_id(apply_sets_visible_to(actor), set_id, _("There is no such set."))


def owned_things(apply_set: ApplySet, members: Sequence[Mapping[str, str]]) -> list[OwnedThing]:
    """Return these members of a set as they are now, in a fixed number of queries."""
    names: dict[str, list[str]] = {}
    for member in members:
        names.setdefault(member["kind"], []).append(member["name"])
    rows = {kind: _rows(kind, apply_set.project, given) for kind, given in names.items()}
    touched = _touched(apply_set.applied_at, [row for found in rows.values() for row in found.values()])
    owners = _other_owners(apply_set)
    effects = _effects([row for found in rows.values() for row in found.values()])
    return [
        OwnedThing(
            kind=kind,
            name=name,
            row=row,
            touched=touched.get(row.pk) if row is not None else None,
            also_in=tuple(owners.get((kind, name), ())),
            may_be_pruned=kind in PRUNABLE and row is not None and not effects.get(row.pk, ("", False))[1],
            if_pruned=_if_pruned(kind, row, effects),
        )
        for kind, name in ((member["kind"], member["name"]) for member in members)
        for row in [rows[kind].get(name)]
    ]


def _rows(kind: str, project: Project | None, names: Sequence[str]) -> Mapping[str, models.Model]:
    """Return what there is of a kind, by the name that documents use."""
    match kind:
        case "Project":
            return {row.slug: row for row in Project.objects.filter(slug__in=names)}
        case "Environment":
            return {row.slug: row for row in Environment.objects.filter(slug__in=names)}
        case "Fleet":
            return {row.slug: row for row in Fleet.objects.filter(slug__in=names)}
        case "Membership":
            members = Membership.objects.filter(project=project, user__username__in=names).select_related("user")
            return {row.user.username: row for row in members}
        case "Model":
            return {row.slug: row for row in RegisteredModel.objects.filter(project=project, slug__in=names)}
        case "ServingConfig":
            of_models = ConfigRevision.objects.filter(model__project=project, model__slug__in=names)
            newest = of_models.order_by("model_id", "-number").distinct("model_id").select_related("model", "author")
            return {row.model.slug: row for row in newest}
        case "ModelCard":
            cards = ModelCard.objects.filter(model__project=project, model__slug__in=names)
            last = cards.order_by("model_id", "-number").distinct("model_id").select_related("model", "author")
            return {row.model.slug: row for row in last}
        case "Deployment":
            pairs = Q(pk__in=[])
            for model, _at, fleet in (name.partition("@") for name in names):
                pairs |= Q(model__slug=model, fleet__slug=fleet)
            served = Deployment.objects.filter(pairs, project=project).select_related("model", "fleet")
            # One that was taken off keeps its row, without routes.
            return {f"{row.model.slug}@{row.fleet.slug}": row for row in served if row.spec.get("routes")}
        case "Webhook":
            return {row.name: row for row in Webhook.objects.filter(project=project, name__in=names)}
        case _:
            return {}


def _touched(since: datetime, rows: Iterable[models.Model]) -> dict[uuid.UUID, Touched]:
    """Return the last change of each row after a moment.

    What an approval or a window brought later than the run that asked for it is no change of somebody else's.
    """
    by_type: dict[str, list[str]] = {}
    found: dict[uuid.UUID, Touched] = {}
    deployments = []
    for row in rows:
        if isinstance(row, Deployment):
            deployments.append(row.pk)
        elif isinstance(row, ConfigRevision | ModelCard):
            if row.created_at > since:
                action = "card.save" if isinstance(row, ModelCard) else "config.create"
                found[row.pk] = Touched(row.author.username, action, row.created_at)
        else:
            by_type.setdefault(row._meta.model_name or "", []).append(str(row.pk))
    rollouts = Rollout.objects.filter(deployment__in=deployments, created_at__gt=since)
    for rollout in (
        rollouts.exclude(approval__created_at__lte=since).select_related("created_by").order_by("created_at")
    ):
        action = f"deployment.{rollout.kind}"
        found[rollout.deployment_id] = Touched(rollout.created_by.username, action, rollout.created_at)
    about = Q(pk__in=[])
    for object_type, ids in by_type.items():
        about |= Q(object_type=object_type, object_id__in=ids)
    for event in AuditEvent.objects.filter(about, created_at__gt=since).order_by("created_at", "id"):
        found[uuid.UUID(event.object_id)] = Touched(event.actor_name, event.action, event.created_at)
    return found


def _other_owners(apply_set: ApplySet) -> dict[tuple[str, str], list[str]]:
    """Return the names of the other sets of the same place by what they own."""
    owners: dict[tuple[str, str], list[str]] = {}
    for other in apply_sets(apply_set.project).exclude(pk=apply_set.pk):
        for member in other.members:
            owners.setdefault((member["kind"], member["name"]), []).append(other.name)
    return owners


def _effects(rows: Iterable[models.Model]) -> dict[uuid.UUID, tuple[str, bool]]:
    """Return what deleting each row would do, and whether that is refused."""
    effects: dict[uuid.UUID, tuple[str, bool]] = {}
    kept = list(rows)
    served = [row for row in kept if isinstance(row, Deployment)]
    nodes = list(nodes_joined()) if served else []
    for deployment in served:
        count = sum(belongs(node, deployment.fleet) for node in nodes)
        text = ngettext("Taken off %(count)d node.", "Taken off %(count)d nodes.", count)
        effects[deployment.pk] = (text % {"count": count}, False)
    used = Deployment.objects.order_by().values_list
    by_fleet = dict(used("fleet_id").annotate(count=Count("pk")))
    by_environment = dict(used("fleet__environment_id").annotate(count=Count("pk")))
    for row in kept:
        if isinstance(row, Environment | Fleet):
            count = (by_environment if isinstance(row, Environment) else by_fleet).get(row.pk, 0)
            text = ngettext(
                "Refused: %(count)d deployment is there.", "Refused: %(count)d deployments are there.", count
            )
            effects[row.pk] = (text % {"count": count} if count else _("Deleted; its nodes stay."), bool(count))
    return effects


def _if_pruned(kind: str, row: models.Model | None, effects: Mapping[uuid.UUID, tuple[str, bool]]) -> str:
    if row is None:
        return _("Nothing: it is gone.")
    if kind not in PRUNABLE:
        return _("Kept: this kind is never deleted.")
    return effects.get(row.pk, (_("Deleted."), False))[0]
