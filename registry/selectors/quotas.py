"""How much of its quotas a project uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Sum

from registry.models import Fleet, Project, ProjectUse, ServingNode, Upload, UploadState
from registry.selectors.fleet import nodes_of


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit and what is used of it. ``name``: bytes, versions or nodes."""

    name: str
    used: int
    limit: int

    @property
    def percent(self) -> int:
        """What is used, 0 to 100, rounded down."""
        return min(100, self.used * 100 // self.limit) if self.limit else 100

    @property
    def is_reached(self) -> bool:
        """Whether nothing more fits."""
        return self.used >= self.limit


def quotas_of(project: Project) -> tuple[Quota, ...]:
    """Return bytes, versions and nodes of a project."""
    return (
        Quota("bytes", bytes_used(project), project.quota_bytes),
        Quota("versions", versions_used(project), project.quota_versions),
        Quota("nodes", len(nodes_used(fleets_used(project))), project.quota_nodes),
    )


def bytes_used(project: Project) -> int:
    """Return the bytes of the files of its versions, and of the uploads that are under way."""
    running = Upload.objects.filter(
        version__model__project=project, state__in=[UploadState.RECEIVING, UploadState.RECEIVED], whole=None
    )
    return _used(project, "bytes") + int(running.aggregate(total=Sum("length"))["total"] or 0)


def versions_used(project: Project) -> int:
    """Return how many versions the project has that were neither given up nor refused."""
    return _used(project, "versions")


def fleets_used(project: Project) -> list[Fleet]:
    """Return the fleets on which deployments of the project have routes."""
    return list(Fleet.objects.filter(deployments__project=project, deployments__routes__isnull=False).distinct())


def nodes_used(fleets: Iterable[Fleet]) -> set[ServingNode]:
    """Return the nodes of the fleets, each once."""
    return {node for fleet in fleets for node in nodes_of(fleet)}


def _used(project: Project, what: str) -> int:
    return int(ProjectUse.objects.filter(project=project).aggregate(total=Sum(what))["total"] or 0)
