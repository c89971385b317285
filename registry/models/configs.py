"""Immutable serving configs of a model."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from registry.models.accounts import ApiToken
from registry.models.base import Row
from registry.models.catalog import RegisteredModel


class ConfigRevision(Row):
    """One numbered revision. ``body`` is ModelConfig as JSON (proto field names), ``digest`` over its canonical form.

    ``source_text`` keeps what was uploaded, with its comments; ``source_format`` is form, pbtxt, json or generated.
    """

    model = models.ForeignKey(RegisteredModel, on_delete=models.PROTECT, related_name="configs")
    number = models.PositiveIntegerField()
    body = models.JSONField()
    digest = models.CharField(max_length=64)
    source_text = models.TextField(blank=True)
    source_format = models.CharField(max_length=16, default="form")
    comment = models.CharField(max_length=500, blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    author_token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="children")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="config_number_once")]

    def __str__(self) -> str:
        return f"{self.model.slug} config {self.number}"
