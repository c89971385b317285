"""Sample inputs of models and versions: given, changed, taken away."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.sample_inputs import MAX_DOCUMENT_BYTES, read_samples
from registry.domain.storable import storable
from registry.errors import PermissionDenied, StaleWrite, ValidationFailed
from registry.models import ModelVersion, RegisteredModel, SampleSet
from registry.selectors.sample_sets import sample_set
from registry.services import audit
from registry.services.permissions import require


def samples_save(
    *,
    model: RegisteredModel,
    version: ModelVersion | None = None,
    samples: list[Any],
    seen: str | None = None,
    actor: Actor,
) -> SampleSet | None:
    """Store samples for a version, or without one for all versions of a model; an empty list takes them away.

    Checks that were made stay as they are; the next ones use them. ``seen`` is the digest of what was edited, "" for
    nothing; None does not look.

    Raises:
        ValidationFailed: one is not as it must be; ``errors`` name the place.
        StaleWrite: they were changed since ``seen``.

    Concurrency: the row of the model is locked.
    """
    require(actor, "version.write", model)
    if actor.user_id is None:
        raise PermissionDenied(_("Samples need an author."))
    digest = _digest(samples) if samples else ""
    if samples:
        read_samples(samples)
    with transaction.atomic():
        RegisteredModel.objects.select_for_update(no_key=True).get(pk=model.pk)
        before = sample_set(model, version)
        known = before.sha256 if before is not None else ""
        if seen is not None and seen != known:
            raise StaleWrite(_("The samples were changed since you read them; read them again."))
        if known == digest:
            return before
        row = before or SampleSet(model=model, version=version)
        audit_before = {"count": len(row.samples), "sha256": known} if before is not None else None
        if samples:
            row.samples, row.sha256, row.updated_at = samples, digest, timezone.now()
            row.author_id, row.author_token_id = actor.user_id, actor.token_id
            row.save()
        audit.record(
            actor=actor,
            action="samples.save",
            obj=row,
            before=audit_before,
            after={"count": len(samples), "sha256": digest},
        )
        if not samples:
            row.delete()
        telemetry.publish_on_commit(f"model:{model.id}", project=model.project_id)
    return row if samples else None


def _digest(samples: list[Any]) -> str:
    """Return the digest of samples that the database can hold. Raises ValidationFailed."""
    try:
        text = orjson.dumps(samples)
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad(_("A number is too large, or the samples are nested too deeply.")) from error
    if len(text) > MAX_DOCUMENT_BYTES:
        raise _bad(_("Samples are at most %(most)d KiB of JSON.") % {"most": MAX_DOCUMENT_BYTES >> 10})
    if storable(samples) != samples:
        raise _bad(_("Texts without the character NUL and finite numbers can be stored, others cannot."))
    return hashlib.sha256(text).hexdigest()


def _bad(message: str) -> ValidationFailed:
    return ValidationFailed(message, errors=[{"field": "samples", "message": message}])
