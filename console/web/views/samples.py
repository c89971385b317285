"""Sample inputs of a model or a version: a page with all of them as JSON."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.web import equivalents
from console.web.forms.models import SamplesForm
from console.web.page import actor_of, page
from console.web.samples import sample_inputs
from console.web.views.models import tab
from registry.errors import RegistryError, StaleWrite
from registry.models import ModelVersion
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.selectors.aliases import latest_version
from registry.selectors.sample_sets import sample_set
from registry.services.sample_sets import samples_save


@require_http_methods(["GET", "POST"])
@page
def samples(request: HttpRequest, project: str, model: str, number: int | None = None) -> HttpResponse:
    """The samples of a version, or without a number those of all versions of the model."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    version = version_selectors.version_by_number(one, number) if number is not None else None
    stored = sample_set(one, version)
    seen = stored.sha256 if stored is not None else ""
    text = json.dumps(stored.samples, indent=2, ensure_ascii=False) if stored is not None else "[]"
    form = SamplesForm(request.POST) if request.method == "POST" else SamplesForm(initial={"text": text, "seen": seen})
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            samples_save(model=one, version=version, samples=given["text"], seen=given["seen"], actor=actor)
        except StaleWrite as error:
            form = _again(form, seen, error)
        except RegistryError as error:
            form.add_error("text", error.message)
        else:
            messages.success(request, _("The samples are saved. The next smoke inference uses them."))
            return redirect(request.path)
    example = _example(version or latest_version(one))
    path = f"projects/{project}/models/{model}/"
    path += f"versions/{number}/samples/" if number is not None else "samples/"
    context = {
        "form": form,
        "version": version,
        "stored": stored,
        "example": json.dumps(example, indent=2),
        "curl": equivalents.curl("PUT", path, {"samples": example}),
    }
    response = tab(request, one, "samples", context)
    response.status_code = 422 if form.is_bound else 200
    return response


def _again(form: SamplesForm, seen: str, error: StaleWrite) -> SamplesForm:
    """Return the form as it was typed; saving once more replaces what somebody else stored."""
    again = SamplesForm({**form.data.dict(), "seen": seen})  # type: ignore[attr-defined]
    again.full_clean()
    again.add_error(None, f"{error.message} {_('Saving once more replaces them.')}")
    return again


def _example(version: ModelVersion | None) -> list[dict[str, Any]]:
    """Return a sample that fits the signature of a version."""
    signature = version.signature if version is not None else None
    inputs = [
        {"name": one.name, "datatype": one.datatype, "shape": list(one.shape), "data": json.loads(one.data or "[]")}
        for one in sample_inputs(signature)
    ]
    outputs = [{"name": one["name"], "datatype": one["datatype"]} for one in (signature or {}).get("outputs", [])]
    expected = [{**one, "shape": [1], "data": [0]} for one in outputs[:1]]
    return [
        {"name": "first", "inputs": inputs, "expected": expected, "tolerance": {"absolute": 1e-5, "relative": 1e-4}}
    ]
