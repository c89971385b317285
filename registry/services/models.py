"""Registered models."""

from __future__ import annotations

from collections.abc import Mapping

from registry.domain.actors import Actor
from registry.models import Project, RegisteredModel


def model_create(
    *, project: Project, slug: str, description: str = "", tags: Mapping[str, str] | None = None, actor: Actor
) -> RegisteredModel:
    """Create a model. ``slug``: letters, digits, ``-`` and ``_``, at most 128; it is the default served name.

    Raises:
        ValidationFailed: a bad name.
        Conflict: the project has a model of that name.
    """
    raise NotImplementedError


def model_get_or_create(*, project: Project, slug: str, actor: Actor) -> tuple[RegisteredModel, bool]:
    """Return the model of that name, made if need be, and whether it was made."""
    raise NotImplementedError


def model_update(
    *, model: RegisteredModel, description: str | None = None, tags: Mapping[str, str] | None = None, actor: Actor
) -> RegisteredModel:
    """Change description or tags; None leaves them."""
    raise NotImplementedError
