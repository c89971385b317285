"""Pages about what versions hold and how they compare: two side by side, a text file, metrics."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.page import actor_of, page, render_page
from registry.errors import RegistryError, ValidationFailed
from registry.selectors import models as model_selectors
from registry.selectors import version_facts as selectors
from registry.selectors import versions as version_selectors
from registry.selectors.aliases import version_named
from registry.services.locking import held
from registry.services.previews import file_preview
from registry.services.versions import version_annotate


@require_GET
@page
def compare(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Two versions side by side, from ``?before=`` and ``?after=`` (numbers or aliases)."""
    one = model_selectors.model_get(actor_of(request), project, model)
    names = [request.GET.get(side, "")[:36] for side in ("before", "after")]
    context: dict[str, Any] = {
        "project": one.project,
        "model": one,
        "choices": list(version_selectors.versions_deployable(one)[:200]),
        "names": names,
    }
    if all(names):
        try:
            found = selectors.compare(version_named(one, names[0]), version_named(one, names[1]))
        except RegistryError as error:
            context["error"] = error
        else:
            path = f"projects/{project}/models/{model}/versions/{names[1]}/compare?against={names[0]}"
            context |= {"found": found, "parts": _parts(found), "curl": equivalents.curl("GET", path)}
    return render_page(request, "web/versions/compare.html", context, project=one.project, current="models")


def _parts(found: selectors.Comparison) -> list[tuple[str, tuple[selectors.Difference, ...]]]:
    return [
        (_("Metrics"), found.metrics),
        (_("Signature"), found.signature),
        (_("Files, by SHA-256"), found.files),
        (_("Source"), found.source),
        (_("Checks"), found.checks),
        (_("Where it runs, with which config"), found.configs),
        (_("Metadata"), found.metadata),
        (_("Facts"), found.facts),
    ]


@require_GET
@page
def preview(request: HttpRequest, project: str, model: str, number: int) -> HttpResponse:
    """The beginning of a text file of a version, never as HTML."""
    one = model_selectors.model_get(actor_of(request), project, model)
    version = version_selectors.version_by_number(one, number)
    file = version_selectors.file_of(version, request.GET.get("path", ""))
    path = f"projects/{project}/models/{model}/versions/{number}/preview?path={file.path}"
    context = {
        "project": one.project,
        "model": one,
        "version": version,
        "file": file,
        "shown": file_preview(file),
        "curl": equivalents.curl("GET", path),
    }
    return render_page(request, "web/versions/preview.html", context, project=one.project, current="models")


class MetricsForm(forms.Form):
    """Metrics as lines: a name, then a number."""

    metrics = forms.CharField(required=False, max_length=10_000)
    seen = forms.CharField(required=False, max_length=10_000)

    def clean_metrics(self) -> dict[str, float]:
        found = {}
        for line in self.cleaned_data["metrics"].splitlines():
            name, _space, value = line.strip().replace("=", " ").rpartition(" ")
            if not line.strip():
                continue
            try:
                found[name.strip()] = float(value)
            except ValueError:
                raise forms.ValidationError(
                    _("A line has a name and a number: %(line)s") % {"line": line[:80]}
                ) from None
        return found


def metrics_text(metrics: dict[str, Any]) -> str:
    """Return metrics as the lines of the form."""
    return "\n".join(f"{name} {value}" for name, value in sorted(metrics.items()))


@require_POST
@page
def annotate(request: HttpRequest, project: str, model: str, number: int) -> HttpResponse:
    """Replace the metrics of a version, if they are still what the page showed."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    version = version_selectors.version_by_number(one, number)
    form = MetricsForm(request.POST)
    if not form.is_valid():
        raise ValidationFailed(" ".join(str(text) for errors in form.errors.values() for text in errors))
    with held(version) as now:
        if metrics_text(now.metrics).split() != form.cleaned_data["seen"].split():
            told = _("Nothing was changed: somebody changed the metrics meanwhile. Look again.")
            messages.warning(request, told)
        else:
            version_annotate(version=now, metrics=form.cleaned_data["metrics"], actor=actor)
            messages.success(request, _("The metrics are saved."))
    return redirect("web:version", project, model, number)
