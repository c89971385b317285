"""Model cards and what a version proposes as one."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils.translation import gettext as _

from registry.domain.cards import MAX_CARD_BYTES, README_NAMES
from registry.errors import NotFound
from registry.models import ModelCard, ModelVersion, RegisteredModel, VersionFile, VersionState


@dataclass(frozen=True, slots=True)
class CardProposal:
    """A README that came with a version and is not the card yet."""

    version: ModelVersion
    file: VersionFile


def cards_of(model: RegisteredModel) -> QuerySet[ModelCard]:
    """Return the revisions of a model's card, newest first."""
    return model.cards.select_related("author", "version", "model__project").order_by("-number")


def card_latest(model: RegisteredModel) -> ModelCard | None:
    """Return the card as it is, None while there is none."""
    return cards_of(model).first()


def card_get(model: RegisteredModel, number: int | None = None) -> ModelCard:
    """Return one revision, the newest without a number.

    Raises:
        NotFound: there is none.
    """
    rows = cards_of(model)
    card = (rows if number is None else rows.filter(number=number)).first()
    if card is None and number is None:
        raise NotFound(_("“%(model)s” has no card yet.") % {"model": model.slug})
    if card is None:
        raise NotFound(
            _("The card of “%(model)s” has no revision %(number)s.") % {"model": model.slug, "number": number}
        )
    return card


def card_proposal(model: RegisteredModel, latest: ModelCard | None) -> CardProposal | None:
    """Return the README of the newest ready version that has one, unless the card is newer or says the same."""
    readmes = VersionFile.objects.filter(path__in=README_NAMES, blob__size__lte=MAX_CARD_BYTES)
    # One step into an index for each version, from the newest on: a join would read the files of every model.
    found = readmes.filter(version=OuterRef("pk")).order_by("path").values("pk")[:1]
    versions = model.versions.filter(state=VersionState.READY).annotate(readme=Subquery(found))
    newest = versions.filter(readme__isnull=False).order_by("-number").values("readme").first()
    if newest is None:
        return None
    file = VersionFile.objects.select_related("version", "blob").get(pk=newest["readme"])
    is_old = latest is not None and file.version.ready_at is not None and latest.created_at > file.version.ready_at
    if is_old or (latest is not None and latest.sha256 == file.blob.sha256):
        return None
    return CardProposal(file.version, file)


def card_proposed_by(model: RegisteredModel, number: int) -> CardProposal | None:
    """Return the README of that version, None when it has none that could be a card."""
    files = VersionFile.objects.filter(
        version__model=model, version__number=number, path__in=README_NAMES, blob__size__lte=MAX_CARD_BYTES
    )
    file = files.select_related("version", "blob").first()
    return CardProposal(file.version, file) if file is not None else None
