"""Model versions with their files and checks."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import F, Model, OuterRef, Prefetch, QuerySet, prefetch_related_objects
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.checks import Cause, CheckKind, kinds_for, place
from registry.errors import NotFound
from registry.models import (
    WITH_ALIASES,
    Alias,
    ApiToken,
    Check,
    Deployment,
    ModelVersion,
    Operation,
    Project,
    RegisteredModel,
    Route,
    Upload,
    UploadState,
    User,
    Verdict,
    VersionFile,
    VersionState,
)
from registry.selectors.accounts import projects_of, seeing
from registry.selectors.lookup import one_by_id
from registry.selectors.models import ModelOverview
from registry.selectors.prepared import Prepared

_ALIAS_NAMES = ArraySubquery(Alias.objects.filter(version=OuterRef("pk")).order_by("name").values("name"))
# Of whom and what a version names, only their names are ever said.
_AUTHOR = (("author", User, {"id", "username"}),)
_TOKEN = (("author_token", ApiToken, {"id", "name"}),)
_PLACE = (("model", RegisteredModel, {"id", "slug", "project_id"}), ("model__project", Project, {"id", "slug"}))
# What a line about a version says, besides its author's name.
_SHOWN = ("model_id", "number", "state", "state_reason", "format", "size_bytes", "source", "created_at")


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version in a list, with the deployments that use it now."""

    version: ModelVersion
    deployments: tuple[Deployment, ...]
    checks_passed: int
    checks_warned: int
    checks_failed: int


@dataclass(frozen=True, slots=True)
class VersionDetail:
    """Everything a version's page shows."""

    version: ModelVersion
    files: tuple[VersionFile, ...]
    uploads: tuple[Upload, ...]
    checks: tuple[Check, ...]
    operation: Operation | None
    rerun: Operation | None
    deployments: tuple[Deployment, ...]


def versions_visible_to(actor: Actor) -> QuerySet[ModelVersion]:
    """Return versions of the actor's projects, with model, project and author, newest first."""
    return (
        ModelVersion.objects.filter(model__project__in=projects_of(actor))
        .select_related("model__project", "author", "code_permitted_by", "code_withdrawn_by", "parent__model")
        .prefetch_related(WITH_ALIASES)
        .order_by("-created_at")
    )


def version_get(actor: Actor, version_id: uuid.UUID | str) -> ModelVersion:
    """Return a version by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    return one_by_id(versions_visible_to(actor), version_id, _("There is no such version."))


def version_by_number(model: RegisteredModel, number: int) -> ModelVersion:
    """Return a version of a model by number.

    Raises:
        NotFound: there is none.
    """
    found = _BY_NUMBER(model=model.pk, number=number)
    if not found:
        raise NotFound(_("“%(model)s” has no version %(number)s.") % {"model": model.slug, "number": number})
    found[0].model = model
    return found[0]


def version_by_id(model: RegisteredModel, version_id: uuid.UUID) -> ModelVersion:
    """Return a version of a model by id.

    Raises:
        NotFound: there is none.
    """
    return one_by_id(
        _narrow(model.versions.all(), _AUTHOR),
        version_id,
        _("“%(model)s” has no such version.") % {"model": model.slug},
    )


def versions_of(model: RegisteredModel) -> QuerySet[ModelVersion]:
    """Return a model's versions with names of author and aliases, newest first; each knows ``model`` without a query.

    ``versions_named`` reads whom else they name.
    """
    rows = model.versions.defer("contributors").annotate(listed_author_name=F("author__username"))
    return rows.annotate(listed_alias_names=_ALIAS_NAMES).order_by("-created_at")


def versions_named(versions: Sequence[ModelVersion]) -> Sequence[ModelVersion]:
    """Read who permitted the code of versions or withdrew that, and their parents, in two queries for all at most.

    Few versions have any of them; joined to every look at a version they would be most of its work.
    """
    people = {one for version in versions for one in (version.code_permitted_by_id, version.code_withdrawn_by_id)}
    known = User.objects.only("username").in_bulk(people - {None}) if people - {None} else {}
    above = {version.parent_id for version in versions} - {None}
    named = ModelVersion.objects.select_related("model").only("model__slug", "number", "state")
    parents = named.in_bulk(above) if above else {}
    for version in versions:
        if version.code_permitted_by_id is not None:
            version.code_permitted_by = known[version.code_permitted_by_id]
        if version.code_withdrawn_by_id is not None:
            version.code_withdrawn_by = known[version.code_withdrawn_by_id]
        if version.parent_id is not None:
            version.parent = parents[version.parent_id]
    return versions


def version_numbered(actor: Actor, project: str, model: str, number: int) -> ModelVersion | None:
    """Return a version by number with model and author, in one query; None when the actor sees none there."""
    user_id = seeing(actor)
    found = _SEEN_BY(user=user_id, project=project, model=model, number=number) if user_id is not None else []
    return next((one for one in found if actor.only_project_id in (None, one.model.project_id)), None)


def _narrow(
    rows: QuerySet[ModelVersion], relations: Iterable[tuple[str, type[Model], set[str]]]
) -> QuerySet[ModelVersion]:
    """Return the rows with what they name, of which only some columns are read."""
    relations = tuple(relations)
    unsaid = (
        f"{relation}__{field.attname}"
        for relation, related, said in relations
        for field in related._meta.concrete_fields
        if field.attname not in said
    )
    return rows.select_related(*(relation for relation, _related, _said in relations)).defer(*unsaid, "contributors")


_BY_NUMBER = Prepared(
    lambda model, number: _narrow(ModelVersion.objects.filter(model_id=model, number=number), (*_AUTHOR, *_TOKEN))
)
_SEEN_BY = Prepared(
    lambda user, project, model, number: _narrow(
        ModelVersion.objects.filter(
            model__project__memberships__user_id=user,
            model__project__slug=project,
            model__slug=model,
            number=number,
        ),
        (*_AUTHOR, *_PLACE),
    ).annotate(listed_alias_names=_ALIAS_NAMES)
)
_ALIASES = Prepared(lambda version: Alias.objects.filter(version_id=version).order_by("name"))
_FILES = Prepared(
    lambda version: VersionFile.objects.filter(version_id=version).select_related("blob").order_by("path")
)
_CHECKS = Prepared(lambda version: Check.objects.filter(version_id=version).order_by("created_at"))
_ROUTES = Prepared(lambda version: Route.objects.filter(version_id=version).select_related("deployment__fleet"))
_RUNS = Prepared(
    lambda version: (
        Operation.objects.filter(
            subject_type="version", subject_id=version, kind__in=("validate_version", "check_version")
        )
        .order_by("kind", "-created_at")
        .distinct("kind")
    )
)


def versions_shown(model: RegisteredModel) -> QuerySet[ModelVersion]:
    """Return what a page lists of the model's versions, newest first: all but abandoned ones, with what it says."""
    rows = model.versions.exclude(state=VersionState.ABANDONED).annotate(listed_author_name=F("author__username"))
    return rows.only(*_SHOWN).order_by("-created_at")


def version_rows(versions: Sequence[ModelVersion]) -> list[VersionRow]:
    """Return versions with what a list says of them, in two queries for all."""
    routes = Route.objects.select_related("deployment__fleet__environment")
    prefetch_related_objects([*versions], Prefetch("routes", queryset=routes))
    return _rows(versions, {version.pk: [route.deployment for route in version.routes.all()] for version in versions})


def version_rows_of(seen: ModelOverview, versions: Sequence[ModelVersion]) -> list[VersionRow]:
    """Return the same of versions of one model whose deployments and aliases are known, in one query for all."""
    aliases: dict[uuid.UUID, list[Alias]] = {version.pk: [] for version in versions}
    for alias in seen.aliases:
        aliases.setdefault(alias.version_id, []).append(alias)
    deployments: dict[uuid.UUID, list[Deployment]] = {version.pk: [] for version in versions}
    for deployment in seen.deployments:
        for route in deployment.routes.all():
            deployments.setdefault(route.version_id, []).append(deployment)
    for version in versions:
        version.listed_aliases = aliases[version.pk]  # type: ignore[attr-defined]
    return _rows(versions, deployments)


def _rows(versions: Sequence[ModelVersion], deployments: Mapping[uuid.UUID, list[Deployment]]) -> list[VersionRow]:
    counts: dict[uuid.UUID, Counter[str]] = {version.pk: Counter() for version in versions}
    for check in Check.objects.filter(version__in=versions).values("version_id", "verdict"):
        counts[check["version_id"]][check["verdict"]] += 1
    return [
        VersionRow(
            version=version,
            deployments=_once(deployments[version.pk]),
            checks_passed=counts[version.pk][Verdict.PASS],
            checks_warned=counts[version.pk][Verdict.WARN],
            checks_failed=counts[version.pk][Verdict.FAIL] + counts[version.pk][Verdict.ERROR],
        )
        for version in versions
    ]


def repeatable_checks(version: ModelVersion, checks: Iterable[Check]) -> list[CheckKind]:
    """Return which checks of a version, that has ``checks``, may be made again or for the first time, in order."""
    if version.number is None:
        return []
    had = {check.kind for check in checks}
    kinds = [kind for kind in kinds_for(version.format) if kind.is_repeatable]
    return [kind for kind in kinds if kind.name in had or kind.cause is Cause.AFTER or kind.can_begin_late]


def file_of(version: ModelVersion, path: str) -> VersionFile:
    """Return a file of a version with its blob.

    Raises:
        NotFound: the version holds none of that path.
    """
    file = version.files.select_related("blob").filter(path=path).first()
    if file is None:
        raise NotFound(_("The version has no file “%(path)s”.") % {"path": path[:200]})
    return file


def upload_in_parts(actor: Actor, version: ModelVersion, upload_id: uuid.UUID) -> Upload:
    """Return an upload in parts of the actor's own.

    Raises:
        NotFound: there is none, or it is somebody else's.
    """
    mine = version.uploads.select_related("version__model").filter(owner_id=actor.user_id, part_bytes__gt=0)
    upload = mine.filter(pk=upload_id).first()
    if upload is None:
        raise NotFound(_("You have no such upload in parts."))
    return upload


def version_detail(version: ModelVersion) -> VersionDetail:
    """Return everything a version's page shows."""
    operations = {one.kind: one for one in _RUNS(version=version.pk)}
    files, checks = _FILES(version=version.pk), _CHECKS(version=version.pk)
    for file in files:
        file.version = version
    for check in checks:
        check.version = version
    version.listed_aliases = _ALIASES(version=version.pk)  # type: ignore[attr-defined]
    return VersionDetail(
        version=version,
        files=tuple(files),
        # With the number the files are there; before it this is what is seen of them.
        uploads=() if version.number else tuple(version.uploads.filter(whole=None).order_by("created_at")),
        checks=tuple(sorted(checks, key=lambda one: place(one.kind))),
        operation=operations.get("validate_version"),
        rerun=operations.get("check_version"),
        deployments=_once([route.deployment for route in _ROUTES(version=version.pk)]),
    )


def version_uploads(actor: Actor, version: ModelVersion) -> list[Upload]:
    """Return the actor's uploads of a version that go on, or have arrived and are not stored yet."""
    running = version.uploads.filter(owner=actor.user_id, state__in=(UploadState.RECEIVING, UploadState.RECEIVED))
    return list(running.exclude(state=UploadState.RECEIVING, expires_at__lte=timezone.now()).order_by("path"))


def versions_deployable(model: RegisteredModel) -> QuerySet[ModelVersion]:
    """Return ready versions of a model with their aliases, newest first."""
    return model.versions.filter(state=VersionState.READY).prefetch_related(WITH_ALIASES).order_by("-number")


def _once(deployments: list[Deployment]) -> tuple[Deployment, ...]:
    return tuple({deployment.pk: deployment for deployment in deployments}.values())
