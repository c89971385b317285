"""One version: its state, checks, files, signature, and where it runs."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.fragments import version_context
from console.web.page import actor_of, page, permissions, render_page
from console.web.undo import done
from console.web.views.version_facts import metrics_text
from registry.errors import NotFound, ValidationFailed
from registry.selectors import models as model_selectors
from registry.selectors import versions as selectors
from registry.selectors.version_facts import lineage_of
from registry.services import versions as services
from registry.services.checks import check_rerun


@require_GET
@page
def version(
    request: HttpRequest, project: str, model: str, number: int | None = None, version_id: uuid.UUID | None = None
) -> HttpResponse:
    """The page of a version, by number or (before it has one) by id."""
    actor = actor_of(request)
    parent = model_selectors.model_get(actor, project, model)
    if number is not None:
        one = selectors.version_by_number(parent, number)
    else:
        one = selectors.version_get(actor, version_id or "")
        if one.model_id != parent.pk:
            raise NotFound(_("There is no such version."))
        if one.number:
            return redirect("web:version", project, model, one.number)
    name = one.number or one.pk
    live = version_context(one)
    context = {
        "project": parent.project,
        "model": parent,
        **live,
        "repeatable": selectors.repeatable_checks(one, live["detail"].checks),
        "lineage": lineage_of(one),
        "metrics_text": metrics_text(one.metrics),
        "curl": equivalents.curl("GET", f"projects/{project}/models/{model}/versions/{name}/"),
        "recheck_curl": equivalents.curl(
            "POST", f"projects/{project}/models/{model}/versions/{name}/checks/smoke/rerun"
        ),
        **permissions(actor, one, "version.write", "deployment.change"),
    }
    topics = [f"version:{one.pk}", f"model:{parent.pk}"]
    return render_page(
        request, "web/versions/detail.html", context, project=parent.project, current="models", topics=topics
    )


@require_POST
@page
def act(request: HttpRequest, project: str, model: str, version_id: uuid.UUID) -> HttpResponse:
    """Archive, restore or give up a version, or make one of its checks again."""
    actor = actor_of(request)
    model_selectors.model_get(actor, project, model)
    one = selectors.version_get(actor, version_id)
    match request.POST.get("act"):
        case "archive":
            services.version_archive(version=one, actor=actor)
            done(request, _("The version is archived."), request.path, act="restore")
        case "restore":
            services.version_restore(version=one, actor=actor)
            done(request, _("The version is ready again."), request.path, act="archive")
        case "abandon":
            services.version_abandon(version=one, reason=_("Given up on its page."), actor=actor)
            messages.success(request, _("The upload is given up."))
            return redirect("web:model-versions", project, model)
        case "recheck":
            check_rerun(version=one, kind=request.POST.get("kind", ""), actor=actor)
            messages.success(request, _("A worker makes the check again; its verdict appears here."))
        case _other:
            raise ValidationFailed(_("There is no such action."))
    return redirect("web:version-by-id", project, model, version_id)
