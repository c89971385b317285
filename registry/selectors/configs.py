"""Config revisions."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.errors import NotFound
from registry.models import ConfigRevision, RegisteredModel
from registry.selectors.accounts import projects_of


def configs_visible_to(actor: Actor) -> QuerySet[ConfigRevision]:
    """Return revisions of the actor's projects, with model and author, newest first."""
    return (
        ConfigRevision.objects.filter(model__project__in=projects_of(actor))
        .select_related("model__project", "author")
        .order_by("-created_at")
    )


def configs_of(model: RegisteredModel) -> QuerySet[ConfigRevision]:
    """Return a model's revisions, newest first."""
    return ConfigRevision.objects.filter(model=model).select_related("model", "author", "parent").order_by("-number")


def config_by_number(model: RegisteredModel, number: int) -> ConfigRevision:
    """Return a revision; number 0 is the newest.

    Raises:
        NotFound: there is none.
    """
    revisions = configs_of(model)
    revision = revisions.filter(number=number).first() if number else revisions.first()
    if revision is None:
        raise NotFound(_("“%(model)s” has no config %(number)s.") % {"model": model.slug, "number": number or ""})
    return revision


def config_latest(model: RegisteredModel) -> ConfigRevision | None:
    """Return the newest revision, None when there is none."""
    return ConfigRevision.objects.filter(model=model).order_by("-number").first()
