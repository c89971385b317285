"""Settings: environments with their rules, and the fleets in them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.web import equivalents
from console.web.forms import environments as forms
from console.web.forms.settings import NewEnvironmentForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.domain.windows import closing_at
from registry.errors import RegistryError
from registry.models import Deployment, Environment, Fleet
from registry.selectors import clock, protection
from registry.selectors import fleet as selectors
from registry.services import environments as services
from registry.services.locking import held


@require_http_methods(["GET", "POST"])
@page
def environments(request: HttpRequest) -> HttpResponse:
    """Environments with their fleets and rules in short; make one more."""
    actor = actor_of(request)
    form = NewEnvironmentForm(request.POST or None, initial={"requires_approval": True})
    if request.method == "POST" and form.is_valid():
        try:
            with transaction.atomic():
                made = services.environment_create(actor=actor, **form.cleaned_data)
                services.fleet_create(
                    slug=made.slug, name=made.name, environment=made, selector={made.slug: "yes"}, actor=actor
                )
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Environment %(name)s is made, with a fleet.") % {"name": made.name})
            return redirect("web:environments")
    now = clock.database_now()
    rows = selectors.environments().prefetch_related("fleets", "approvers")
    context = {
        "section": "environments",
        "rows": [(one, _opening(one, now)) for one in rows],
        "form": form,
        "curl": equivalents.curl(
            "POST",
            "environments/",
            {"slug": "staging", "name": "Staging", "requires_approval": True, "required_approvals": 1},
        ),
        "fleet_curl": equivalents.curl(
            "POST",
            "fleets/",
            {"slug": "staging", "name": "Staging", "environment": "staging", "selector": {"staging": "yes"}},
        ),
        **permissions(actor, None, "site.environments"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/settings/environments.html", context, current="settings", status=status)


@require_http_methods(["GET", "POST"])
@page
def environment(request: HttpRequest, slug: str) -> HttpResponse:
    """An environment's rules, what waits there, and its end."""
    actor = actor_of(request)
    one = selectors.environment_get(slug)
    posted = request.POST if request.method == "POST" else None
    form, windows = forms.ProtectionForm(posted, environment=one), forms.windows_form(one, posted)
    # Both, so that every mistake is shown at once.
    if posted is not None and all([form.is_valid(), windows.is_valid()]):
        try:
            with held(one) as now:
                is_saved = form.is_current(forms.protection_facts(now))
                if is_saved:
                    given = {**form.changes(), "windows": forms.windows_given(windows)}
                    services.environment_update(environment=now, actor=actor, **given)
        except RegistryError as error:
            add_errors(form, error)
        else:
            if is_saved:
                messages.success(request, _("The rules of %(name)s are saved.") % {"name": one.name})
                return redirect("web:environment", slug)
    context = {
        "section": "environments",
        "environment": one,
        "form": form,
        "windows": windows,
        "opening": _opening(one, clock.database_now()),
        "waiting": protection.requests_waiting(one).count(),
        "fleets": list(one.fleets.annotate(deployed=Count("deployments")).order_by("slug")),
        "deployments": Deployment.objects.filter(fleet__environment=one).count(),
        "curl": equivalents.curl("PATCH", f"environments/{slug}/", {"wait_minutes": 30}),
        **permissions(actor, None, "site.environments", "site.fleet"),
    }
    status = 422 if posted is not None else 200
    return render_page(request, "web/settings/environment.html", context, current="settings", status=status)


@require_POST
@page
def environment_delete(request: HttpRequest, slug: str) -> HttpResponse:
    """Delete an environment with its fleets."""
    one = selectors.environment_get(slug)
    services.environment_delete(environment=one, actor=actor_of(request))
    messages.success(request, _("Environment %(name)s is deleted.") % {"name": one.name})
    return redirect("web:environments")


@require_http_methods(["GET", "POST"])
@page
def fleet(request: HttpRequest, slug: str) -> HttpResponse:
    """A fleet's name and nodes. Another selector is shown with what it moves, and saved when that is confirmed."""
    actor = actor_of(request)
    one = selectors.fleet_by_slug(slug)
    posted = request.POST if request.method == "POST" else None
    form = forms.FleetForm(posted, fleet=one)
    moves: dict[str, Any] | None = None
    if posted is not None and form.is_valid():
        moves = _moves(one, form.selector())
        if moves is None or posted.get("confirmed") == forms.labels_text(form.selector()):
            try:
                with held(one) as now:
                    is_saved = form.is_current(forms.fleet_facts(now))
                    if is_saved:
                        services.fleet_update(
                            fleet=now, name=form.cleaned_data["name"], selector=form.selector(), actor=actor
                        )
            except RegistryError as error:
                add_errors(form, error)
            else:
                if is_saved:
                    messages.success(request, _("Fleet %(name)s is changed.") % {"name": form.cleaned_data["name"]})
                    return redirect("web:fleet-settings", slug)
    context = {
        "section": "environments",
        "fleet": one,
        "form": form,
        "moves": moves,
        "nodes": list(selectors.nodes_of(one)),
        "deployments": one.deployments.count(),
        "curl": equivalents.curl("PATCH", f"fleets/{slug}/", {"selector": one.selector}),
        **permissions(actor, None, "site.fleet"),
    }
    status = 422 if form.errors else 200
    return render_page(request, "web/settings/fleet.html", context, current="settings", status=status)


@require_POST
@page
def fleet_delete(request: HttpRequest, slug: str) -> HttpResponse:
    """Delete a fleet."""
    one = selectors.fleet_by_slug(slug)
    services.fleet_delete(fleet=one, actor=actor_of(request))
    messages.success(request, _("Fleet %(name)s is deleted.") % {"name": one.name})
    return redirect("web:environment", one.environment.slug)


def _opening(environment: Environment, now: Any) -> dict[str, Any]:
    """Return whether changes may start by the windows, else when, and what closes them."""
    opens = protection.opens_at(environment, now)
    closed = opens != now
    names = closing_at(protection.windows_of(environment), now) if closed else ""
    return {"is_open": not closed, "opens_at": opens, "closed_by": names}


def _moves(fleet: Fleet, selector: dict[str, str]) -> dict[str, Any] | None:
    """Return what another selector would move; None when it is the same."""
    if selector == fleet.selector:
        return None
    before = {node.name for node in selectors.nodes_of(fleet)}
    after = {node.name for node in selectors.nodes_of(Fleet(selector=selector))}
    return {
        "labels": forms.labels_text(selector),
        "leave": sorted(before - after),
        "join": sorted(after - before),
        "stay": len(before & after),
        "deployments": list(fleet.deployments.order_by("served_name").values_list("served_name", flat=True)[:50]),
        "waiting": fleet.deployments.filter(approvals__state__in=protection.WAITING).count(),
    }
