"""The form of a project's quotas."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from console.web.forms.editing import EditForm
from registry.models import Project
from registry.services.quotas import MAX_BYTES, MAX_COUNT

_GIB = 1024**3


def quota_facts(project: Project) -> dict[str, Any]:
    """Return the limits as the form's values; ``gibibytes`` is exact for limits that the form set."""
    return {
        "gibibytes": round(project.quota_bytes / _GIB, 3),
        "versions": project.quota_versions,
        "nodes": project.quota_nodes,
    }


class QuotasForm(EditForm):
    """New limits of a project."""

    gibibytes = forms.FloatField(
        min_value=0, max_value=MAX_BYTES / _GIB, label=gettext_lazy("Files"), help_text=gettext_lazy("In GiB.")
    )
    versions = forms.IntegerField(min_value=0, max_value=MAX_COUNT, label=gettext_lazy("Versions"))
    nodes = forms.IntegerField(min_value=0, max_value=MAX_COUNT, label=gettext_lazy("Nodes"))
    test_ids = {"gibibytes": "quota-bytes", "versions": "quota-versions", "nodes": "quota-nodes"}

    def limits(self) -> dict[str, int]:
        """Return the limits that were typed; a size that was left alone is left out, so that it is not rounded."""
        given = self.cleaned_data
        limits = {"versions": given["versions"], "nodes": given["nodes"]}
        if given["gibibytes"] != self.initial["gibibytes"]:
            limits["bytes"] = round(given["gibibytes"] * _GIB)
        return limits
