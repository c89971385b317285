"""What sets of declarative files own."""

from __future__ import annotations

from django.db.models import QuerySet

from registry.models import ApplySet, Project


def apply_sets(project: Project | None) -> QuerySet[ApplySet]:
    """Return the sets of a project, or of the site (None), by name."""
    return ApplySet.objects.filter(project=project).select_related("project", "applied_by").order_by("name")
