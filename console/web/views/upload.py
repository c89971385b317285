"""Uploading a version: the page, its start and its submission. The bytes go by tus to /api/v1/uploads/."""

from __future__ import annotations

import uuid

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.forms.upload import UploadForm
from console.web.fragments import version_live
from console.web.page import actor_of, page, permissions, render_page
from registry.errors import RegistryError
from registry.models import ModelVersion
from registry.selectors import accounts
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.services import models as model_services
from registry.services import versions as version_services


@require_GET
@page
def upload(request: HttpRequest, project: str) -> HttpResponse:
    """The page: choose a model, drop files, watch the checks."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    model = request.GET.get("model", "")
    names = (
        model_selectors.models_visible_to(actor).filter(project=room).order_by("slug").values_list("slug", flat=True)
    )
    context = {
        "project": room,
        "form": UploadForm(initial={"model": model}),
        "model_names": list(names[:500]),
        "push": equivalents.push(room.slug, model or "sentiment"),
        "curl": equivalents.upload(room.slug, model or "sentiment"),
        **permissions(actor, room, "version.write"),
    }
    return render_page(request, "web/upload.html", context, project=room, current="models")


@require_POST
@page
def start(request: HttpRequest, project: str) -> HttpResponse:
    """Make the model when it is new, and an empty version; answer with where its files go."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    form = UploadForm(request.POST)
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=422)
    try:
        model, _is_new = model_services.model_get_or_create(project=room, slug=form.cleaned_data["model"], actor=actor)
        sha = form.cleaned_data["git_sha"]
        version = version_services.version_create(model=model, source={"git_sha": sha} if sha else {}, actor=actor)
    except RegistryError as error:
        return JsonResponse({"errors": {"__all__": [error.message]}}, status=409)
    arguments = [room.slug, version.pk]
    return JsonResponse(
        {
            "version": str(version.pk),
            "topic": f"version:{version.pk}",
            "submit": reverse("web:upload-submit", args=arguments),
            "progress": reverse("web:upload-progress", args=arguments),
            "page": reverse("web:version-by-id", args=[room.slug, model.slug, version.pk]),
        },
        status=201,
    )


def _version(request: HttpRequest, project: str, version_id: uuid.UUID) -> ModelVersion:
    actor = actor_of(request)
    accounts.project_get(actor, project)
    return version_selectors.version_get(actor, version_id)


@require_POST
@page
def submit(request: HttpRequest, project: str, version_id: uuid.UUID) -> HttpResponse:
    """All files are there: start the checks."""
    version = _version(request, project, version_id)
    try:
        version_services.version_submit(version=version, actor=actor_of(request))
    except RegistryError as error:
        return render(request, "web/fragments/error.html", {"error": error}, status=409)
    return HttpResponse(version_live(str(version.pk), ""))


@require_GET
@page
def progress(request: HttpRequest, project: str, version_id: uuid.UUID) -> HttpResponse:
    """The live part of a version: state, checks, signature."""
    return HttpResponse(version_live(str(_version(request, project, version_id).pk), ""))
