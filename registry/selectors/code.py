"""Code in versions: what of them is code, what a plan would let nodes run, and what runs now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from registry.models import CodeFormats, ConfigRevision, Deployment, ModelVersion, Project, Route, ScratchUnit
from registry.selectors.config_effects import request_rates
from registry.selectors.fleet import belongs, nodes_of
from serving_node.contract.code_formats import CODE_TEXTS, CodePart, code_parts
from serving_node.contract.model_config import ModelConfig, parse_json


@dataclass(frozen=True, slots=True)
class PlannedCode:
    """The code of one version under one config. ``is_permitted``: nodes may run all of it already."""

    version: ModelVersion
    parts: tuple[CodePart, ...]
    is_permitted: bool

    def files(self) -> list[dict[str, str]]:
        """Return the parts as ``{"path", "why"}``, for people."""
        return [_file(part) for part in self.parts]


@dataclass(frozen=True, slots=True)
class CodeEffect:
    """What withdrawing the permission for a version's code does to a deployment of it.

    ``weight`` is the share of requests (%) that the version answers there, ``rest`` that of what could answer instead.
    ``request_rate`` is of the last five minutes, 1/s, over all nodes of the fleet.
    """

    deployment: Deployment
    weight: int
    rest: int
    nodes: tuple[str, ...]
    request_rate: float


def code_files(paths: Iterable[str], config: ModelConfig) -> list[dict[str, str]]:
    """Return the parts of a version that are code under a config, as ``{"path", "why"}``."""
    return [_file(part) for part in code_parts(paths, config)]


def _file(part: CodePart) -> dict[str, str]:
    text = CODE_TEXTS[part.kind]
    return {"path": part.path, "why": _(text)}


def planned_code(project: Project, pairs: Iterable[tuple[ModelVersion, ConfigRevision]]) -> list[PlannedCode]:
    """Return the code that approvals must name, where the project asks for that; else nothing."""
    if project.code_formats != CodeFormats.APPROVE:
        return []
    found = []
    for version, config in pairs:
        parts = code_parts(version.files.values_list("path", flat=True), parse_json(config.body))
        if parts:
            known = {file["path"] for file in version.code_files} if version.code_permitted_at is not None else set()
            found.append(PlannedCode(version, parts, known >= {part.path for part in parts}))
    return found


def code_document(planned: Iterable[PlannedCode]) -> list[dict[str, str]]:
    """Return the code of a plan as its approval is bound to it, whether it is permitted yet or not."""
    rows = {(one.version.manifest_digest, part.path, part.kind.value) for one in planned for part in one.parts}
    return [{"version": version, "path": path, "kind": kind} for version, path, kind in sorted(rows)]


def versions_permitted(project: Project) -> QuerySet[ModelVersion]:
    """Return the versions of a project whose code nodes may run, with model and who permitted it, newest first."""
    rows = ModelVersion.objects.filter(model__project=project, code_permitted_at__isnull=False)
    related = ("model__project", "code_permitted_by", "code_withdrawn_by")
    return rows.select_related(*related).order_by("-code_permitted_at")


def versions_running_code(project: Project) -> QuerySet[ModelVersion]:
    """Return those of them that are deployed, or held by a node to be measured."""
    routed = Route.objects.filter(deployment__project=project).values_list("version_id", flat=True)
    held = ScratchUnit.objects.filter(version__model__project=project).values_list("version_id", flat=True)
    # By the ids, which an index answers: as a subquery they are looked for in all permitted versions.
    return versions_permitted(project).filter(pk__in=[*routed, *held])


def code_effects(versions: Sequence[ModelVersion], now: datetime) -> list[CodeEffect]:
    """Return what withdrawing the permission for the code of these versions does, the busiest deployment first."""
    gone = {version.pk for version in versions}
    deployments = list(
        Deployment.objects.filter(routes__version__in=gone)
        .distinct()
        .select_related("fleet__environment", "model", "project")
        .prefetch_related("routes__version")
    )
    if not deployments:
        return []
    nodes = list(nodes_of(*{one.fleet_id: one.fleet for one in deployments}.values()))
    rates = request_rates({one.served_name for one in deployments}, now)
    found = []
    for one in deployments:
        routes = list(one.routes.all())
        weight = sum(route.weight for route in routes if route.version_id in gone)
        names = [node for node in nodes if belongs(node, one.fleet)]
        rate = sum(rates.get((one.served_name, node.pk), 0.0) for node in names)
        rest = sum(route.weight for route in routes if route.version_id not in gone)
        found.append(CodeEffect(one, weight, rest, tuple(sorted(node.name for node in names)), rate))
    return sorted(found, key=lambda effect: -effect.request_rate)


def code_withdrawn_sentence(version: ModelVersion) -> str:
    """Return who took the permission back and why; empty when nobody did."""
    if version.code_withdrawn_at is None:
        return ""
    who = version.code_withdrawn_by
    return _("The permission to run the code of version %(number)s was withdrawn by %(who)s: %(reason)s") % {
        "number": version.number,
        "who": who.username if who is not None else _("somebody"),
        "reason": version.code_withdrawn_reason,
    }
