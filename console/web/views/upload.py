"""Uploading a version: the page, its start and its submission. The bytes go by tus to /api/v1/uploads/.

Or the server fetches the files from an address itself; then a page follows that.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.forms.upload import AddressForm, UploadForm
from console.web.fragments import version_context, version_live
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.domain.actors import Actor
from registry.domain.paths import MAX_FILES
from registry.errors import NotFound, RegistryError
from registry.models import ModelVersion, Project
from registry.selectors import accounts
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.selectors.operations import operation_of
from registry.services import fetching
from registry.services import models as model_services
from registry.services import versions as version_services


@require_GET
@page
def upload(request: HttpRequest, project: str) -> HttpResponse:
    """The page: choose a model, drop files or name an address, watch the checks."""
    room = accounts.project_get(actor_of(request), project)
    return _upload_page(request, room, AddressForm(initial={"model": request.GET.get("model", "")}))


def _upload_page(request: HttpRequest, room: Project, address_form: AddressForm, status: int = 200) -> HttpResponse:
    actor = actor_of(request)
    model = request.GET.get("model", "")
    names = (
        model_selectors.models_visible_to(actor).filter(project=room).order_by("slug").values_list("slug", flat=True)
    )
    example = model or "sentiment"
    context = {
        "project": room,
        "form": UploadForm(initial={"model": model}),
        "address_form": address_form,
        "sources": settings.IMPORT_SOURCES,
        "most_bytes": settings.MAX_UPLOAD_BYTES,
        "most_files": MAX_FILES,
        "expiry_hours": settings.UPLOAD_EXPIRY_HOURS,
        "model_names": list(names[:500]),
        "example": example,
        "push": equivalents.push(room.slug, example),
        "curl": equivalents.upload(room.slug, example),
        "push_address": equivalents.push(room.slug, example, _example_address()),
        "fetch": equivalents.fetch(room.slug, example, _example_address()),
        **permissions(actor, room, "version.write"),
    }
    return render_page(request, "web/upload.html", context, project=room, current="models", status=status)


def _example_address() -> str:
    """Return an address that this server fetches from, or one that looks like it."""
    source = settings.IMPORT_SOURCES[0] if settings.IMPORT_SOURCES else "https://models.example.com/public/"
    return f"{source.rstrip('/')}/model.onnx"


def _begin(form: UploadForm, room: Project, actor: Actor) -> ModelVersion:
    """Make the model when it is new, and an empty version."""
    model, _is_new = model_services.model_get_or_create(project=room, slug=form.cleaned_data["model"], actor=actor)
    sha = form.cleaned_data["git_sha"]
    return version_services.version_create(model=model, source={"git_sha": sha} if sha else {}, actor=actor)


@require_POST
@page
def start(request: HttpRequest, project: str) -> HttpResponse:
    """Begin a version; answer with where its files go."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    form = UploadForm(request.POST)
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=422)
    try:
        version = _begin(form, room, actor)
    except RegistryError as error:
        return JsonResponse({"errors": {"__all__": [error.message]}}, status=409)
    model = form.cleaned_data["model"]
    arguments = [room.slug, version.pk]
    return JsonResponse(
        {
            "version": str(version.pk),
            "model": model,
            "topic": f"version:{version.pk}",
            "api": f"/api/v1/projects/{room.slug}/models/{model}/versions/{version.pk}/",
            "standing": reverse("web:upload-standing", args=arguments),
            "attach": reverse("web:upload-attach", args=arguments),
            "submit": reverse("web:upload-submit", args=arguments),
            "progress": reverse("web:upload-progress", args=arguments),
            "page": reverse("web:version-by-id", args=[room.slug, model, version.pk]),
        },
        status=201,
    )


@require_POST
@page
def fetch(request: HttpRequest, project: str) -> HttpResponse:
    """Begin a version whose files the server fetches from an address; a bad address makes nothing."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    form = AddressForm(request.POST)
    if form.is_valid():
        try:
            version = _begin(form, room, actor)
            fetching.version_fetch(version=version, address=form.cleaned_data["address"], actor=actor)
        except RegistryError as error:
            add_errors(form, error)
        else:
            return redirect("web:upload-followed", room.slug, version.pk)
    return _upload_page(request, room, form, status=422)


@require_GET
@page
def followed(request: HttpRequest, project: str, version_id: uuid.UUID) -> HttpResponse:
    """What is being fetched, live: the fetch, then the checks and the signature."""
    version = _version(request, project, version_id)
    operation = operation_of("version", version.pk, fetching.KIND)
    actor, room = actor_of(request), version.model.project
    context = {
        "project": room,
        "model": version.model,
        **version_context(version),
        "operation": operation,
        **(permissions(actor, operation, "operation.cancel") if operation else {}),
    }
    topics = [f"version:{version.pk}", *([f"operation:{operation.pk}"] if operation else [])]
    return render_page(request, "web/upload_followed.html", context, project=room, current="models", topics=topics)


def _version(request: HttpRequest, project: str, version_id: uuid.UUID) -> ModelVersion:
    actor = actor_of(request)
    accounts.project_get(actor, project)
    return version_selectors.version_get(actor, version_id)


@require_GET
@page
def standing(request: HttpRequest, project: str, version_id: uuid.UUID) -> HttpResponse:
    """What the server has of a version, by path: for a page that goes on with what another one began."""
    version = _version(request, project, version_id)
    found: dict[str, dict[str, Any]] = {}
    for one in version_selectors.version_uploads(actor_of(request), version):
        found[one.path] = {
            "url": f"/api/v1/uploads/{one.pk}",
            "offset": one.offset,
            "size": one.length,
            "is_here": one.offset == one.length,
        }
    for path, size in version.files.values_list("path", "blob__size"):
        found[path] = {"url": "", "offset": size, "size": size, "is_here": True}
    return JsonResponse({"state": version.state, "files": found})


@require_POST
@page
def attach(request: HttpRequest, project: str, version_id: uuid.UUID) -> HttpResponse:
    """Take a file by its digest, when the server has the content; whether it has is no error, so 200 either way."""
    version = _version(request, project, version_id)
    path, sha256 = request.POST.get("path", ""), request.POST.get("sha256", "")
    try:
        version_services.version_attach_blob(version=version, path=path, sha256=sha256, actor=actor_of(request))
    except NotFound:
        return JsonResponse({"is_here": False})
    except RegistryError as error:
        return JsonResponse({"detail": error.message, "code": error.code}, status=409)
    return JsonResponse({"is_here": True})


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
