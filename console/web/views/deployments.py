"""Deployments: the list, the page of one, its traffic and the way back."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.charts import chart_context
from console.web.forms.traffic import TrafficForm
from console.web.fragments import change_tracks, deployment_context
from console.web.page import actor_of, page, permissions, render_page
from console.web.undo import done
from console.web.views.deploy import after_change
from registry.domain.plans import DeploymentSpec
from registry.errors import NotFound, RegistryError
from registry.models import Deployment
from registry.models.deployments import HealthStatus, RolloutPhase
from registry.selectors import accounts, metrics
from registry.selectors import deployments as selectors
from registry.selectors import stages as stage_selectors
from registry.selectors.protection import timing_of
from registry.services import deployments as services
from registry.services import plans as plan_services
from registry.services import rollout_steering as steering


@require_GET
@page
def deployment_list(request: HttpRequest, project: str) -> HttpResponse:
    """A project's deployments, filtered by fleet and health in the address."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    rows = selectors.deployments_of(room)
    health, search = request.GET.get("health", ""), request.GET.get("q", "").strip()
    if health:
        rows = rows.filter(health=health)
    if search:
        rows = rows.filter(served_name__icontains=search)
    found = list(rows[:200])
    context = {
        "project": room,
        "rows": [deployment_context(status) for status in selectors.deployment_statuses(found)],
        "search": search,
        "health": health,
        "healths": HealthStatus.values,
    }
    topics = [f"project:{room.pk}", *(f"deployment:{one.pk}" for one in found[:40])]
    return render_page(
        request, "web/deployments/list.html", context, project=room, current="deployments", topics=topics
    )


def _get(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> Deployment:
    found = selectors.deployment_get(actor_of(request), deployment_id)
    if found.project.slug != project:
        raise NotFound(_("There is no such deployment."))
    return found


@require_GET
@page
def deployment(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> HttpResponse:
    """The page that is watched during a rollout."""
    actor = actor_of(request)
    one = _get(request, project, deployment_id)
    live = deployment_context(selectors.deployment_status(one))
    form = TrafficForm(live["status"].routes)
    context = {
        "project": one.project,
        "model": one.model,
        **live,
        "tracks": change_tracks(live["status"]),
        "traffic": form,
        "steps": (5, 10, 25, 50, 100),
        "traffic_curl": equivalents.curl(
            "POST", f"projects/{project}/deployments/{one.pk}/routes", {"weights": form.present()}
        ),
        "rollback_curl": equivalents.curl("POST", f"projects/{project}/deployments/{one.pk}/rollback"),
        **_steering(live["status"]),
        "rollouts": list(selectors.rollouts_of(one)[:10]),
        "summary": _summary(one),
        "timing": timing_of(one.fleet.environment, timezone.now()),
        **chart_context(request, [one]),
        **permissions(actor, one, "deployment.change", "deployment.traffic", "deployment.rollback", "deployment.infer"),
    }
    topics = [f"deployment:{one.pk}", "metrics"]
    return render_page(
        request, "web/deployments/detail.html", context, project=one.project, current="deployments", topics=topics
    )


def _steering(status: selectors.DeploymentStatus) -> dict[str, Any]:
    """Return what the panel about the newest change needs."""
    rollout = status.rollout or status.last_rollout
    if rollout is None:
        return {}
    may_retry = rollout.phase in (RolloutPhase.FAILED, RolloutPhase.ROLLED_BACK)
    verb = "retry" if may_retry else "resume" if rollout.phase == RolloutPhase.PAUSED else "pause"
    routes = rollout.spec_from.get("routes", [])
    return {
        "may_retry": may_retry,
        "before_label": " + ".join(f"v{route['version']} {route['weight']} %" for route in routes if route["weight"]),
        "steering_curl": equivalents.curl("POST", f"rollouts/{rollout.pk}/{verb}", {}),
    }


def _summary(one: Deployment) -> metrics.Summary | None:
    try:
        return metrics.summary(model=one.served_name, fleet=one.fleet_id)
    except RegistryError:
        return None


@require_POST
@page
def traffic_plan(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> HttpResponse:
    """What moved weights would change, as a fragment."""
    one = _get(request, project, deployment_id)
    form = TrafficForm(selectors.deployment_status(one).routes, request.POST)
    if not form.is_valid():
        return render(request, "web/fragments/traffic_plan.html", {"form": form})
    try:
        spec = DeploymentSpec.from_json(one.spec).with_weights(form.by_version())
        found = plan_services.deployment_plan(model=one.model, fleet=one.fleet, spec=spec, actor=actor_of(request))
    except RegistryError as error:
        return render(request, "web/fragments/traffic_plan.html", {"error": error})
    body: dict[str, Any] = {"weights": form.weights()}
    curl = equivalents.curl("POST", f"projects/{project}/deployments/{one.pk}/routes", body)
    context = {"plan": found, "summary": _summary(one), "curl": curl}
    return render(request, "web/fragments/traffic_plan.html", context)


@require_POST
@page
def traffic(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> HttpResponse:
    """Move the weights."""
    one = _get(request, project, deployment_id)
    before = TrafficForm(selectors.deployment_status(one).routes)
    form = TrafficForm(before.routes, request.POST)
    if not form.is_valid():
        for problem in form.problems():
            messages.error(request, problem)
        return redirect("web:deployment", project, deployment_id)
    try:
        outcome = services.deployment_traffic(
            deployment=one, weights=form.weights(), generation=_seen_generation(request), actor=actor_of(request)
        )
    except RegistryError as error:
        messages.error(request, error.message)
        return redirect("web:deployment", project, deployment_id)
    if outcome.rollout is None:
        return after_change(request, outcome)
    # Only while nothing else changed the deployment: its generation is the one that this change made.
    weights = {before.name_of(number): str(route.weight) for number, route in enumerate(before.routes)}
    done(request, _("The traffic moves."), request.path, generation=str(outcome.rollout.generation), **weights)
    return redirect("web:deployment", project, deployment_id)


def _seen_generation(request: HttpRequest) -> int | None:
    """Return the generation that the page showed, so that two who press the button at once go back one step only."""
    text = request.POST.get("generation", "")[:9]
    return int(text) if text.isascii() and text.isdigit() else None


@require_POST
@page
def rollback(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> HttpResponse:
    """Go back to what was there before."""
    one = _get(request, project, deployment_id)
    try:
        outcome = services.deployment_rollback(
            deployment=one, generation=_seen_generation(request), actor=actor_of(request)
        )
    except RegistryError as error:
        messages.error(request, error.message)
        return redirect("web:deployment", project, deployment_id)
    if outcome.approval is None and outcome.rollout is not None:
        messages.success(request, _("Rolling back."))
        return redirect("web:deployment", project, deployment_id)
    return after_change(request, outcome)


@require_GET
@page
def rollout(request: HttpRequest, project: str, deployment_id: uuid.UUID, rollout_id: uuid.UUID) -> HttpResponse:
    """One change of a deployment: its stages, what it changed, and every move of its phase."""
    actor, one = actor_of(request), _get(request, project, deployment_id)
    found = selectors.rollout_get(actor, rollout_id)
    if found.deployment_id != one.pk:
        raise NotFound(_("There is no such rollout."))
    context = {
        "project": one.project,
        "model": one.model,
        "deployment": one,
        "rollout": found,
        "stages": stage_selectors.rollout_stages(found, timezone.now()),
        "moves": stage_selectors.rollout_moves(found),
        "curl": equivalents.curl("GET", f"rollouts/{found.pk}/stages"),
    }
    topics = [f"deployment:{one.pk}"]
    return render_page(
        request, "web/deployments/rollout.html", context, project=one.project, current="deployments", topics=topics
    )


@require_POST
@page
def rollout_steer(request: HttpRequest, project: str, deployment_id: uuid.UUID, rollout_id: uuid.UUID) -> HttpResponse:
    """Pause, resume or abort a change that is under way, or ask for a failed one again."""
    actor, one = actor_of(request), _get(request, project, deployment_id)
    rollout = selectors.rollout_get(actor, rollout_id)
    if rollout.deployment_id != one.pk:
        raise NotFound(_("There is no such rollout."))
    reason = request.POST.get("reason", "")
    try:
        match request.POST.get("act", ""):
            case "pause":
                steering.rollout_pause(rollout=rollout, reason=reason, actor=actor)
                done(request, _("Paused."), request.path, act="resume")
            case "resume":
                steering.rollout_resume(rollout=rollout, reason=reason, actor=actor)
                done(request, _("It goes on."), request.path, act="pause")
            case "abort":
                steering.rollout_abort(rollout=rollout, reason=reason, actor=actor)
                messages.success(request, _("It goes back to what was there before."))
            case "retry":
                return after_change(request, services.rollout_retry(rollout=rollout, actor=actor))
            case _:
                pass  # no button of the page says so
    except RegistryError as error:
        messages.error(request, error.message)
    return redirect("web:deployment", project, deployment_id)
