"""Registered models."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import ConfigRevision, Deployment, ModelVersion, Project, RegisteredModel


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model in a list: its newest ready version, its deployments, and their worst health (empty: none)."""

    model: RegisteredModel
    latest_version: ModelVersion | None
    version_count: int
    deployments: tuple[Deployment, ...]
    health: str = ""
    sync: str = ""


@dataclass(frozen=True, slots=True)
class ModelOverview:
    """What the head of a model's page shows."""

    model: RegisteredModel
    latest_version: ModelVersion | None
    latest_config: ConfigRevision | None
    deployments: tuple[Deployment, ...]


def models_visible_to(actor: Actor) -> QuerySet[RegisteredModel]:
    """Return models of the actor's projects, with project and owner."""
    raise NotImplementedError


def model_get(actor: Actor, project_slug: str, slug: str) -> RegisteredModel:
    """Return a model.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    raise NotImplementedError


def model_rows(project: Project, *, search: str = "") -> list[ModelRow]:
    """Return a project's models for a list, by name, in a fixed number of queries."""
    raise NotImplementedError


def model_overview(model: RegisteredModel) -> ModelOverview:
    """Return what the head of a model's page shows."""
    raise NotImplementedError
