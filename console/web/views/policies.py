"""Settings of a project: how large versions may be, under which licences, and what code runs."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.web import equivalents
from console.web.forms.policies import LicencePolicyForm, SizeLimitsForm, licence_facts, limit_facts
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.domain.actors import Actor
from registry.domain.sizes import limits_json
from registry.errors import RegistryError
from registry.models import Project
from registry.selectors.accounts import project_get
from registry.selectors.code import code_effects, versions_running_code
from registry.selectors.permissions import can
from registry.selectors.policies import licence_policy_of, size_limits_of
from registry.services.locking import held
from registry.services.policies import licence_policy_set, size_limits_set

_MOST_RUNNING = 100


@require_http_methods(["GET", "POST"])
@page
def policies(request: HttpRequest, project: str) -> HttpResponse:
    """Both policies as they are, and their forms for administrators of the project."""
    actor = actor_of(request)
    room = project_get(actor, project)
    which = request.POST.get("form", "") if request.method == "POST" else ""
    sizes = SizeLimitsForm(request.POST if which == "size" else None, now=limit_facts(size_limits_of(room)))
    licences = LicencePolicyForm(
        request.POST if which == "licence" else None, now=licence_facts(licence_policy_of(room))
    )
    if (which == "size" and _save_sizes(room, sizes, actor)) or (
        which == "licence" and _save_licences(room, licences, actor)
    ):
        messages.success(request, _("Saved. It holds for versions that are checked from now on."))
        return redirect("web:policies", room.slug)
    room.refresh_from_db()
    may_withdraw = bool(can(actor, "project.policy", room))
    limits, policy = size_limits_of(room), licence_policy_of(room)
    running = list(versions_running_code(room))
    context = {
        "section": "projects",
        "project": room,
        "size_form": sizes,
        "licence_form": licences,
        "limits": limits,
        "policy": policy,
        "running": running[:_MOST_RUNNING],
        "effects": code_effects(running, timezone.now()) if may_withdraw else [],
        "curl": equivalents.curl("PATCH", f"projects/{room.slug}/policies/", {"size_limits": limits_json(limits)}),
        "licence_curl": equivalents.curl(
            "PATCH", f"projects/{room.slug}/policies/", {"licence_policy": policy.to_json()}
        ),
        **permissions(actor, room, "project.policy"),
    }
    return render_page(
        request,
        "web/settings/policies.html",
        context,
        project=room,
        current="settings",
        topics=[f"project:{room.pk}"],
        status=422 if which else 200,
    )


def _save_sizes(room: Project, form: SizeLimitsForm, actor: Actor) -> bool:
    if not form.is_valid():
        return False
    try:
        with held(room) as now:
            limits = size_limits_of(now)
            if not form.is_current(limit_facts(limits)):
                return False
            size_limits_set(project=now, limits=form.limits(limits), actor=actor)
    except RegistryError as error:
        add_errors(form, error)
        return False
    return True


def _save_licences(room: Project, form: LicencePolicyForm, actor: Actor) -> bool:
    if not form.is_valid():
        return False
    try:
        with held(room) as now:
            if not form.is_current(licence_facts(licence_policy_of(now))):
                return False
            licence_policy_set(project=now, policy=form.policy(), actor=actor)
    except RegistryError as error:
        add_errors(form, error)
        return False
    return True
