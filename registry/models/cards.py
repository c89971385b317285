"""Model cards."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from registry.models.accounts import ApiToken
from registry.models.base import Row
from registry.models.catalog import ModelVersion, RegisteredModel


class ModelCard(Row):
    """One immutable revision of a model's card, in Markdown. ``version`` is the one whose README it was."""

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="cards")
    number = models.PositiveIntegerField()
    text = models.TextField()
    sha256 = models.CharField(max_length=64)
    comment = models.CharField(max_length=500, blank=True)
    version = models.ForeignKey(ModelVersion, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    author_token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="card_number_once")]

    def __str__(self) -> str:
        return f"{self.model.slug} card {self.number}"
