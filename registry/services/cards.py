"""Model cards: Markdown in immutable revisions."""

from __future__ import annotations

import hashlib

from django.db import transaction
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.cards import card_problem
from registry.errors import PermissionDenied, StaleWrite, ValidationFailed
from registry.models import ModelCard, ModelVersion, RegisteredModel
from registry.services import audit
from registry.services.permissions import require


def card_save(
    *,
    model: RegisteredModel,
    text: str,
    comment: str = "",
    version: ModelVersion | None = None,
    seen: int | None = None,
    actor: Actor,
) -> ModelCard:
    """Store a new revision of the card; the newest one again when the text is the same.

    ``version`` is the one whose README it is. ``seen`` is the number of the revision that was edited, 0 for none;
    None does not look.

    Raises:
        ValidationFailed: an empty text, one that is too long, or no text at all.
        StaleWrite: there is a newer revision than ``seen``.

    Concurrency: the row of the model is locked while the number is given.
    """
    require(actor, "model.write", model)
    problem = card_problem(text)
    if problem:
        raise ValidationFailed(problem, errors=[{"field": "text", "message": problem}])
    if actor.user_id is None:
        raise PermissionDenied(_("A card needs an author."))
    with transaction.atomic():
        RegisteredModel.objects.select_for_update(no_key=True).get(pk=model.pk)
        newest = ModelCard.objects.filter(model=model).order_by("-number").first()
        number = newest.number if newest is not None else 0
        if seen is not None and seen != number:
            raise StaleWrite(_("The card was changed since you read it; read it again."))
        digest = hashlib.sha256(text.encode()).hexdigest()
        if newest is not None and newest.sha256 == digest:
            return newest
        card = ModelCard.objects.create(
            model=model,
            number=number + 1,
            text=text,
            sha256=digest,
            comment=comment,
            version=version,
            author_id=actor.user_id,
            author_token_id=actor.token_id,
        )
        audit.record(
            actor=actor,
            action="card.save",
            obj=card,
            before={"number": number} if number else None,
            after={"number": card.number, "sha256": digest, "comment": comment},
        )
        telemetry.publish_on_commit(f"model:{model.id}", project=model.project_id)
    return card
