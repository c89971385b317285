"""Sample inputs that somebody gave for a model or for one version."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from registry.models.accounts import ApiToken
from registry.models.base import Row
from registry.models.catalog import ModelVersion, RegisteredModel


class SampleSet(Row):
    """What a version is tried with; ``version`` None: all versions of the model. See registry.domain.sample_inputs."""

    model = models.ForeignKey(RegisteredModel, on_delete=models.CASCADE, related_name="sample_sets")
    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    samples = models.JSONField()
    sha256 = models.CharField(max_length=64)
    updated_at = models.DateTimeField(default=timezone.now)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    author_token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model"], condition=Q(version=None), name="samples_once_a_model"),
            models.UniqueConstraint(fields=["version"], name="samples_once_a_version"),
        ]

    def __str__(self) -> str:
        if self.version is None:
            return f"samples of {self.model.slug}"
        return f"samples of {self.model.slug} v{self.version.number or self.version.pk}"
