"""Append-only history: moves of state, actions of people, and the chain that seals them."""

from __future__ import annotations

import pgtrigger
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.utils import timezone

from registry.models.base import Row


def append_only(name: str) -> list[pgtrigger.Trigger]:
    """Return triggers under which rows of a table stay as they were written: no update, no delete, no truncate."""
    return [
        pgtrigger.Protect(name=f"{name}_append_only", operation=pgtrigger.Update | pgtrigger.Delete),
        pgtrigger.Trigger(
            name=f"{name}_no_truncate",
            level=pgtrigger.Statement,
            when=pgtrigger.Before,
            operation=pgtrigger.Truncate,
            func="RAISE EXCEPTION 'pgtrigger: Cannot truncate % table', TG_TABLE_NAME;",
        ),
    ]


class Transition(Row):
    """One move of a state column. Never updated or deleted by hand."""

    object_type = models.CharField(max_length=32)
    object_id = models.UUIDField()
    from_state = models.CharField(max_length=32)
    to_state = models.CharField(max_length=32)
    cause = models.TextField(blank=True)
    actor_name = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [models.Index(fields=["object_type", "object_id", "created_at"], name="transition_object")]
        triggers = append_only("transition")


def searchable() -> models.Func:
    """Return what a search of the audit log looks at: words of letters and digits, and ids and addresses as a whole.

    No extension is needed (there is no trigram index in the embedded database), so searches find beginnings.
    The index is on this very expression.
    """
    words = models.Func(
        *("actor_name", "action", "object_type", "object_label"),
        arg_joiner=" || ' ' || ",
        template="to_tsvector('simple', regexp_replace(%(expressions)s, '[^[:alnum:]]+', ' ', 'g'))",
    )
    # The mark keeps them apart from words: 1 shall not find 127.0.0.1.
    address = models.Func("ip", template="'=' || host(%(expressions)s)")
    ids = (models.Func(name, template="'=' || lower(%(expressions)s)") for name in ("object_id", "request_id"))
    whole = models.Func(address, *ids, template="array_to_tsvector(array_remove(ARRAY[%(expressions)s], NULL))")
    return models.Func(words, whole, arg_joiner=" || ", template="(%(expressions)s)", output_field=SearchVectorField())


class AuditEvent(Row):
    """Who did what to which object. ``before``/``after`` never hold secrets."""

    project_id = models.UUIDField(null=True, blank=True)
    actor_name = models.CharField(max_length=200)
    actor_id = models.UUIDField(null=True, blank=True)
    token_id = models.UUIDField(null=True, blank=True)
    ip = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=64)
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64)
    object_label = models.CharField(max_length=300, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["project_id", "-created_at"], name="audit_project"),
            models.Index(fields=["object_type", "object_id"], name="audit_object"),
            models.Index(fields=["created_at"], name="audit_by_age"),
            models.Index(fields=["action", "-created_at"], name="audit_action"),
            models.Index(fields=["actor_name", "-created_at"], name="audit_actor"),
            models.Index(fields=["request_id"], name="audit_request"),
            GinIndex(searchable(), name="audit_search"),
        ]
        triggers = append_only("audit")


class AuditSeal(models.Model):
    """The hash chain over AuditEvent, one chain a project (``chain`` is its id, or ``site``), made by the sealer."""

    chain = models.CharField(max_length=40)
    sequence = models.PositiveBigIntegerField()
    event = models.OneToOneField(AuditEvent, on_delete=models.PROTECT, related_name="seal")
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    sealed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain", "sequence"], name="seal_sequence_once")]
        triggers = append_only("seal")
