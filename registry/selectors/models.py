"""Registered models."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import OuterRef, Prefetch, Q, QuerySet, Subquery, Sum, prefetch_related_objects
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.health import Verdict, worst
from registry.errors import NotFound
from registry.models import (
    Alias,
    Blob,
    Deployment,
    ModelState,
    ModelVersion,
    Project,
    RegisteredModel,
    VersionFile,
    VersionState,
)
from registry.selectors.accounts import projects_of, seeing
from registry.selectors.prepared import Prepared


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model in a list: its newest ready version, its deployments, and their worst health (empty: none).

    ``version_count`` is how many versions got a number so far, archived ones too.
    """

    model: RegisteredModel
    latest_version: ModelVersion | None
    version_count: int
    deployments: tuple[Deployment, ...]
    aliases: tuple[Alias, ...] = ()
    health: str = ""
    sync: str = ""


@dataclass(frozen=True, slots=True)
class ModelOverview:
    """What the head of a model's page shows."""

    model: RegisteredModel
    latest_version: ModelVersion | None
    deployments: tuple[Deployment, ...]
    aliases: tuple[Alias, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelImpact:
    """What goes when a model is deleted. ``bytes_released`` is content that no version of another model holds."""

    versions: int
    configs: int
    aliases: int
    card_revisions: int
    deployments: int
    files: int
    bytes_released: int

    def to_json(self) -> dict[str, int]:
        """Return the counts by name."""
        return {field: getattr(self, field) for field in self.__slots__}


_SEEN_BY = Prepared(
    lambda user, project, slug: RegisteredModel.objects.filter(
        project__memberships__user_id=user, project__slug=project, slug=slug
    ).select_related("project", "owner")
)
_NEWEST = Prepared(
    lambda model: (
        ModelVersion.objects.filter(model_id=model, state=VersionState.READY)
        .only("model_id", "number", "state")
        .order_by("-number")[:1]
    )
)
_SYNC_ORDER = ("synced", "progressing", "unknown", "out_of_sync")


def models_visible_to(actor: Actor) -> QuerySet[RegisteredModel]:
    """Return models of the actor's projects, with project and owner."""
    return (
        RegisteredModel.objects.filter(project__in=projects_of(actor))
        .select_related("project", "owner")
        .order_by("-created_at")
    )


def model_get(actor: Actor, project_slug: str, slug: str) -> RegisteredModel:
    """Return a model.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    user_id = seeing(actor)
    if actor.is_system:
        model = models_visible_to(actor).filter(project__slug=project_slug, slug=slug).first()
    else:
        found = _SEEN_BY(user=user_id, project=project_slug, slug=slug) if user_id is not None else []
        model = next((one for one in found if actor.only_project_id in (None, one.project_id)), None)
    if model is None:
        raise NotFound(_("There is no model “%(slug)s” that you can see.") % {"slug": slug})
    return model


@dataclass(frozen=True, slots=True)
class ModelFilter:
    """Which models a list shows; empty: all. ``tag`` is ``name`` or ``name=value``, ``owner`` a user name."""

    search: str = ""
    task: str = ""
    tag: str = ""
    owner: str = ""
    state: str = ModelState.ACTIVE

    def condition(self) -> Q:
        """Return what a model must meet."""
        found = Q()
        if self.search:
            found &= Q(slug__icontains=self.search) | Q(description__icontains=self.search)
        if self.task:
            found &= Q(task=self.task)
        if self.tag:
            name, equals, value = self.tag.partition("=")
            found &= Q(tags__contains={name: value}) if equals else Q(tags__has_key=name)
        if self.owner:
            found &= Q(owner__username=self.owner)
        if self.state in ModelState.values:
            found &= Q(state=self.state)
        return found


def model_rows(
    project: Project, *, wanted: ModelFilter | None = None, after: str = "", limit: int | None = None
) -> list[ModelRow]:
    """Return a project's models for a list, by name, in a fixed number of queries.

    ``after`` leaves out names up to that one, and ``limit`` those behind so many.
    """
    # One step into an index for each model: a join would read every version of the project.
    newest = ModelVersion.objects.filter(model=OuterRef("pk"), state=VersionState.READY).order_by("-number")
    models = (
        RegisteredModel.objects.filter((wanted or ModelFilter()).condition(), project=project, slug__gt=after)
        .select_related("owner", "project")
        .annotate(newest_ready=Subquery(newest.values("pk")[:1]))
        .prefetch_related(
            Prefetch("deployments", queryset=_deployments(Deployment.objects.all()), to_attr="shown_deployments"),
            Prefetch("aliases", queryset=_aliases(), to_attr="shown_aliases"),
        )
        .order_by("slug")
    )
    found = [*models[:limit]]
    shown = ModelVersion.objects.only("model_id", "number", "size_bytes", "created_at")
    versions = shown.in_bulk([pk for model in found if (pk := model.newest_ready)])
    return [_row(model, versions.get(model.newest_ready)) for model in found]


def owners_and_tasks(project: Project) -> tuple[list[str], list[str]]:
    """Return the names of those who own a model of the project, and the tasks that models of it have."""
    rows = list(RegisteredModel.objects.filter(project=project).values_list("owner__username", "task").distinct())
    return sorted({owner for owner, _task in rows}), sorted({task for _owner, task in rows if task})


def model_impact(model: RegisteredModel) -> ModelImpact:
    """Return what deleting the model would take with it."""
    # By the ids, which an index answers: a join would read the files of every model.
    versions = list(model.versions.values_list("pk", flat=True))
    files = VersionFile.objects.filter(version__in=versions)
    elsewhere = VersionFile.objects.filter(blob=OuterRef("pk")).exclude(version__in=versions)
    released = Blob.objects.filter(pk__in=files.values("blob")).annotate(elsewhere=Subquery(elsewhere.values("pk")[:1]))
    return ModelImpact(
        versions=len(versions),
        configs=model.configs.count(),
        aliases=model.aliases.count(),
        card_revisions=model.cards.count(),
        deployments=model.deployments.count(),
        files=files.count(),
        bytes_released=released.filter(elsewhere=None).aggregate(total=Sum("size"))["total"] or 0,
    )


def deployments_serving(model: RegisteredModel) -> list[Deployment]:
    """Return the deployments that have routes to versions of the model."""
    serving = Deployment.objects.filter(model=model, routes__isnull=False)
    return list(serving.select_related("fleet").distinct())


def model_overview(model: RegisteredModel) -> ModelOverview:
    """Return what the head of a model's page shows."""
    deployments = _DEPLOYED(model=model.pk)
    prefetch_related_objects(deployments, *_ROUTED)
    return ModelOverview(
        model=model,
        latest_version=next(iter(_NEWEST(model=model.pk)), None),
        deployments=tuple(deployments),
        aliases=tuple(_NAMES(model=model.pk)),
    )


def _aliases() -> QuerySet[Alias]:
    return Alias.objects.select_related("version").order_by("name")


def _deployments(rows: QuerySet[Deployment]) -> QuerySet[Deployment]:
    return (
        rows.select_related("fleet__environment", "project")
        .prefetch_related(*_ROUTED)
        .order_by("fleet__environment__position", "fleet__slug")
    )


_ROUTED = ("routes__version", "routes__config")
_DEPLOYED = Prepared(lambda model: _deployments(Deployment.objects.filter(model_id=model)))
_NAMES = Prepared(lambda model: _aliases().filter(model_id=model))


def _row(model: RegisteredModel, newest: ModelVersion | None) -> ModelRow:
    deployments: list[Deployment] = getattr(model, "shown_deployments", [])
    syncs = [deployment.sync for deployment in deployments]
    return ModelRow(
        model=model,
        latest_version=newest,
        version_count=model.next_version - 1,
        deployments=tuple(deployments),
        aliases=tuple(getattr(model, "shown_aliases", ())),
        health=worst([Verdict(one.health) for one in deployments]).status if deployments else "",
        sync=max(syncs, key=_SYNC_ORDER.index) if syncs else "",
    )
