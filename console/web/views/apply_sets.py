"""Settings: sets of files that `flotilla apply` keeps, what each owns, and what became of it since."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

from django.contrib import messages
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.page import actor_of, page, permissions, render_page
from registry.models import (
    ApplySet,
    ConfigRevision,
    Deployment,
    Environment,
    Fleet,
    Membership,
    ModelCard,
    Project,
    RegisteredModel,
)
from registry.selectors import apply_sets as selectors
from registry.selectors.accounts import projects_of
from registry.services import apply_sets as services

SETS_SHOWN = 200
THINGS_SHOWN = 200


@require_GET
@page
def set_list(request: HttpRequest) -> HttpResponse:
    """Every set of the viewer's projects, and of the site for its administrators."""
    actor = actor_of(request)
    found = list(selectors.apply_sets_visible_to(actor)[:SETS_SHOWN])
    context = {
        "section": "apply-sets",
        "sets": found,
        "is_cut": len(found) == SETS_SHOWN,
        "most": SETS_SHOWN,
    }
    topics = [f"project:{one.pk}" for one in projects_of(actor)[:20]] + ["fleet"]
    return render_page(request, "web/settings/apply_sets.html", context, current="settings", topics=topics)


@require_GET
@page
def apply_set(request: HttpRequest, set_id: uuid.UUID) -> HttpResponse:
    """What a set owns: how each thing stands since the last run, and what pruning would do to it."""
    actor = actor_of(request)
    one = selectors.apply_set_get(actor, set_id)
    kind, search = request.GET.get("kind", ""), request.GET.get("q", "").strip()
    members = [
        member
        for member in one.members
        if (not kind or member["kind"] == kind) and search.lower() in member["name"].lower()
    ]
    start = _start(request, len(members))
    things = selectors.owned_things(one, members[start : start + THINGS_SHOWN])
    address = f"{f'projects/{one.project.slug}/' if one.project else ''}apply-sets/{one.name}/"
    context: dict[str, Any] = {
        "section": "apply-sets",
        "set": one,
        "things": [(thing, _address(thing.row, one.project)) for thing in things],
        "standings": Counter(thing.standing for thing in things),
        "pruned": sum(thing.may_be_pruned for thing in things),
        "kinds": sorted({member["kind"] for member in one.members}),
        "kind": kind,
        "search": search,
        "matching": len(members),
        "start": start + 1,
        "end": start + len(things),
        "earlier": max(0, start - THINGS_SHOWN) if start else None,
        "later": start + THINGS_SHOWN if start + THINGS_SHOWN < len(members) else None,
        "flags": f" --project {one.project.slug}" if one.project else "",
        "curl": equivalents.curl("GET", f"{address}things/"),
        "forget_curl": equivalents.curl("DELETE", address),
        **permissions(actor, one.project, "model.write" if one.project else "site.environments"),
    }
    context["may_forget"] = context.get("model_write", context.get("site_environments"))
    served = [thing.row.pk for thing in things if isinstance(thing.row, Deployment)]
    topics = [f"project:{one.project_id}" if one.project_id else "fleet", *(f"deployment:{pk}" for pk in served[:40])]
    return render_page(
        request, "web/settings/apply_set.html", context, project=one.project, current="settings", topics=topics
    )


def _start(request: HttpRequest, count: int) -> int:
    text = request.GET.get("from", "")[:6]
    start = int(text) if text.isascii() and text.isdigit() else 0
    return start if start < count else 0


def _address(row: models.Model | None, project: Project | None) -> str:
    """Return the page of a thing, empty when it has none."""
    match row:
        case Project():
            return reverse("web:project", args=[row.slug])
        case Environment():
            return reverse("web:environment", args=[row.slug])
        case Fleet():
            return reverse("web:fleet-settings", args=[row.slug])
        case Membership():
            return reverse("web:members")
        case RegisteredModel() if project is not None:
            return reverse("web:model", args=[project.slug, row.slug])
        case ConfigRevision() if project is not None:
            return reverse("web:config", args=[project.slug, row.model.slug, row.number])
        case ModelCard() if project is not None:
            return reverse("web:model-card", args=[project.slug, row.model.slug])
        case Deployment() if project is not None:
            return reverse("web:deployment", args=[project.slug, row.pk])
    return ""


@require_POST
@page
def forget(request: HttpRequest, set_id: uuid.UUID) -> HttpResponse:
    """Forget a set; what it owned stays."""
    actor = actor_of(request)
    one: ApplySet = selectors.apply_set_get(actor, set_id)
    services.apply_set_forget(apply_set=one, actor=actor)
    messages.success(request, _("The set “%(name)s” is forgotten; what it owned stays.") % {"name": one.name})
    return redirect("web:apply-sets")
