"""Putting a version on a fleet: the form, the preview of what would change, and the wish itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.web import equivalents
from console.web.forms.deploy import DeployForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.domain.aliases import is_alias
from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.errors import RegistryError, ValidationFailed
from registry.models import ApprovalState, Deployment, Fleet, RegisteredModel
from registry.selectors import configs as config_selectors
from registry.selectors import fleet as fleet_selectors
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.selectors.aliases import alias_numbers
from registry.selectors.approvals import needs_people
from registry.selectors.protection import timing_of
from registry.services import deployments as services
from registry.services import plans as plan_services
from registry.services.deployments import ChangeOutcome


def wanted_spec(current: DeploymentSpec, choice: dict[str, Any]) -> DeploymentSpec:
    """Return the spec that a filled-in form asks for.

    ``replace`` gives the version all traffic; ``canary`` gives it ``weight`` percent beside the present live routes,
    instead of a canary that may be there.
    """
    chosen = RouteSpec(version=choice["version"], config=choice["config"], role="live", weight=100)
    live = [route for route in current.routes if route.role == "live"]
    if choice["strategy"] == "canary":
        if not live:
            raise ValidationFailed(
                _("There is no live version here yet to put a canary beside."),
                errors=[{"field": "strategy", "message": _("A canary needs a live version on this fleet first.")}],
            )
        if any((route.version, route.config) == (chosen.version, chosen.config) for route in live):
            raise ValidationFailed(
                _("This version is live already."),
                errors=[{"field": "version", "message": _("This version is live on the fleet already.")}],
            )
        weight = choice["weight"]
        routes = (*_shares(live, 100 - weight), replace(chosen, role="canary", weight=weight))
    else:
        routes = (chosen,)
    return replace(current, routes=routes, sticky=choice["sticky"])


def _shares(live: list[RouteSpec], total: int) -> list[RouteSpec]:
    """Return the live routes with ``total`` percent among them in their old proportion, as whole numbers."""
    before = sum(route.weight for route in live) or 1
    shared = [replace(route, weight=total * route.weight // before) for route in live]
    rest = total - sum(route.weight for route in shared)
    return [replace(shared[0], weight=shared[0].weight + rest), *shared[1:]]


def _current(model: RegisteredModel, fleet: Fleet) -> DeploymentSpec:
    deployment = Deployment.objects.filter(model=model, fleet=fleet).first()
    return DeploymentSpec.from_json(deployment.spec) if deployment else DeploymentSpec()


def _form(request: HttpRequest, model: RegisteredModel, data: Any = None) -> DeployForm:
    versions = list(version_selectors.versions_deployable(model))
    configs = list(config_selectors.configs_of(model)[:100])
    fleets = list(fleet_selectors.fleets())
    initial: dict[str, Any] = {
        name: request.GET[name] for name in ("version", "config", "fleet", "strategy", "weight") if name in request.GET
    }
    wanted = str(initial.get("version", ""))
    if is_alias(wanted):
        initial["version"] = alias_numbers(model, [wanted]).get(wanted)
    if fleets:
        initial.setdefault("fleet", fleets[0].slug)
    if versions:
        initial.setdefault("version", versions[0].number)
    chosen = next((fleet for fleet in fleets if fleet.slug == initial.get("fleet")), None)
    if chosen and _current(model, chosen).routes:
        initial.setdefault("strategy", "canary")
    return DeployForm(data, versions=versions, configs=configs, fleets=fleets, initial=initial)


@require_http_methods(["GET", "POST"])
@page
def deploy(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """The form; a POST asks for the change and goes to the rollout, or to the approval that it needs."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    form = _form(request, one, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            fleet = fleet_selectors.fleet_by_slug(form.cleaned_data["fleet"])
            spec = wanted_spec(_current(one, fleet), form.cleaned_data)
            outcome = services.deployment_change(
                model=one, fleet=fleet, spec=spec, comment=form.cleaned_data["comment"], actor=actor
            )
        except RegistryError as error:
            add_errors(form, error)
        else:
            return after_change(request, outcome)
    context = {
        "project": one.project,
        "model": one,
        "form": form,
        "has_versions": bool(form.versions),
        **permissions(actor, one, "deployment.change"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/deploy/form.html", context, project=one.project, current="models", status=status)


def after_change(request: HttpRequest, outcome: ChangeOutcome) -> HttpResponse:
    """Go where the wish is worked on, and say what became of it."""
    if outcome.approval is not None:
        if outcome.approval.state == ApprovalState.APPROVED:
            messages.info(request, _("It starts by itself when its time has come."))
        elif needs_people(outcome.approval):
            messages.info(request, _("This needs approval. The request is in the reviewers' inbox."))
        else:
            messages.info(request, _("It starts by itself when nothing is missing any more."))
        return redirect("web:approval", outcome.approval.pk)
    if outcome.rollout is None:
        messages.info(request, _("Nothing to change: this is what is wanted already."))
    else:
        messages.success(request, _("The rollout has started."))
    return redirect("web:deployment", outcome.deployment.project.slug, outcome.deployment.pk)


@require_POST
@page
def plan(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """What the form would change, as a fragment. Stores nothing; a form that is not finished says what is missing."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    form = _form(request, one, request.POST)
    if not form.is_valid():
        return render(request, "web/fragments/plan.html", {"form": form})
    try:
        fleet = fleet_selectors.fleet_by_slug(form.cleaned_data["fleet"])
        spec = wanted_spec(_current(one, fleet), form.cleaned_data)
        found = plan_services.deployment_plan(model=one, fleet=fleet, spec=spec, actor=actor)
    except RegistryError as error:
        return render(request, "web/fragments/plan.html", {"error": error})
    body = {"model": one.slug, "fleet": fleet.slug, "spec": _for_api(spec), "comment": form.cleaned_data["comment"]}
    context = {
        "plan": found,
        "curl": equivalents.curl("POST", f"projects/{project}/deployments/", body),
        # A plan that no rule holds up has no findings.
        "timing": timing_of(fleet.environment, timezone.now()) if found.protection.findings else None,
    }
    return render(request, "web/fragments/plan.html", context)


def _for_api(spec: DeploymentSpec) -> dict[str, Any]:
    """Return the part of the spec that a caller of the API writes: numbers, not ids."""
    document: dict[str, Any] = {
        "routes": [
            {"version": route.version, "config": route.config, "role": route.role, "weight": route.weight}
            for route in spec.routes
        ]
    }
    if spec.sticky:
        document["sticky"] = spec.sticky
    return document
