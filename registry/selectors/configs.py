"""Config revisions."""

from __future__ import annotations

from django.db.models import QuerySet

from registry.domain.actors import Actor
from registry.models import ConfigRevision, RegisteredModel


def configs_visible_to(actor: Actor) -> QuerySet[ConfigRevision]:
    """Return revisions of the actor's projects, with model and author, newest first."""
    raise NotImplementedError


def configs_of(model: RegisteredModel) -> QuerySet[ConfigRevision]:
    """Return a model's revisions, newest first."""
    raise NotImplementedError


def config_by_number(model: RegisteredModel, number: int) -> ConfigRevision:
    """Return a revision; number 0 is the newest.

    Raises:
        NotFound: there is none.
    """
    raise NotImplementedError


def config_latest(model: RegisteredModel) -> ConfigRevision | None:
    """Return the newest revision, None when there is none."""
    raise NotImplementedError
