"""A project's page in the settings: what it uses of its quotas."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.web import equivalents
from console.web.forms.quotas import QuotasForm, quota_facts
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.errors import RegistryError
from registry.selectors import accounts
from registry.selectors.quotas import quotas_of
from registry.services.locking import held
from registry.services.quotas import quota_set


@require_http_methods(["GET", "POST"])
@page
def project(request: HttpRequest, project: str) -> HttpResponse:
    """Bars for bytes, versions and nodes; site administrators change the limits."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    form = QuotasForm(request.POST or None, now=quota_facts(room))
    if request.method == "POST" and form.is_valid():
        try:
            with held(room) as now:
                is_saved = form.is_current(quota_facts(now))
                if is_saved:
                    quota_set(project=now, **form.limits(), actor=actor)
        except RegistryError as error:
            add_errors(form, error)
        else:
            if is_saved:
                messages.success(request, _("The quotas are saved."))
                return redirect("web:project", room.slug)
    room.refresh_from_db()
    context = {
        "section": "projects",
        "project": room,
        "quotas": quotas_of(room),
        "form": form,
        "curl": equivalents.curl("PATCH", f"projects/{room.slug}/quotas/", {"versions": room.quota_versions}),
        **permissions(actor, None, "site.quotas"),
    }
    status = 422 if form.is_bound else 200
    return render_page(
        request,
        "web/settings/project.html",
        context,
        project=room,
        current="settings",
        topics=[f"project:{room.pk}"],
        status=status,
    )
