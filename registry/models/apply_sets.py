"""What sets of declarative files own."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from registry.models.accounts import Project
from registry.models.base import Row


class ApplySet(Row):
    """A named set of files that somebody applies: ``members`` are ``{"kind", "name"}`` of what they made last.

    Of one project, or (``project`` null) of the site. What a set owns and its files no longer name may be pruned.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="apply_sets")
    name = models.CharField(max_length=100)
    members = models.JSONField(default=list)
    applied_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    applied_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="apply_set_once", nulls_distinct=False)]

    def __str__(self) -> str:
        return self.name
