"""Try it: a prediction from the page, or two of one request side by side. A worker asks the node; the page follows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.answers import compared, latency_of, outputs_of, shortened
from console.web.forms.try_it import FILLS, TryForm
from console.web.page import actor_of, page, permissions
from console.web.samples import sample_inputs
from console.web.views.models import tab
from registry.errors import NotFound, RegistryError
from registry.models import Deployment, Operation, Route
from registry.models.operations import OperationState
from registry.selectors import deployments as deployment_selectors
from registry.selectors import models as model_selectors
from registry.selectors import operations as operation_selectors
from registry.services import operations as services

FINAL = {OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED}


@require_GET
@page
def model_try(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """The form, filled with a sample made from the signature."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    served = list(model_selectors.model_overview(one).deployments)
    wanted = request.GET.get("deployment")
    chosen = next((each for each in served if str(each.pk) == wanted), served[0] if served else None)
    context: dict[str, Any] = {"served": served, "chosen": chosen, "fills": FILLS}
    if chosen is not None:
        chosen_units = {name: request.GET[name] for name in ("unit", "beside") if name in request.GET}
        context |= {"form": _form(chosen, initial=chosen_units), **permissions(actor, chosen, "deployment.infer")}
    return tab(request, one, "try", context)


def _form(deployment: Deployment, data: Any = None, initial: Mapping[str, str] | None = None) -> TryForm:
    routes = deployment_selectors.deployment_status(deployment).routes
    first = next((route for route in routes if route.role == "live"), routes[0] if routes else None)
    samples = sample_inputs(first.version.signature if first else None)
    units = [(route.unit, _label(route)) for route in routes]
    return TryForm(samples, units, data, initial)


def _label(route: Route) -> str:
    names = {"version": route.version.number, "config": route.config.number, "role": route.get_role_display()}
    return _("v%(version)s, config %(config)s (%(role)s)") % names


@require_POST
@page
def run(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> HttpResponse:
    """Ask for the prediction, or for two of the same request; the answer is a fragment that follows them."""
    actor = actor_of(request)
    deployment = deployment_selectors.deployment_get(actor, deployment_id)
    if deployment.project.slug != project:
        raise NotFound(_("There is no such deployment."))
    form = _form(deployment, request.POST)
    if not form.is_valid():
        return render(request, "web/fragments/try_result.html", {"form": form})
    body = {"inputs": form.cleaned_data["inputs"]}
    unit, beside = form.cleaned_data["unit"], form.cleaned_data["beside"]
    try:
        with transaction.atomic():
            asked = [
                services.try_it(deployment=deployment, inputs=body, unit=one, actor=actor)
                for one in ([unit, beside] if beside else [unit])
            ]
    except RegistryError as error:
        return render(request, "web/fragments/try_result.html", {"error": error})
    if beside:
        return render(request, "web/fragments/try_compared.html", _compared(*asked))
    return render(request, "web/fragments/try_result.html", _result(*asked))


@require_GET
@page
def result(request: HttpRequest, operation_id: uuid.UUID) -> HttpResponse:
    """The fragment again, until the operation has ended."""
    operation = operation_selectors.operation_get(actor_of(request), operation_id)
    return render(request, "web/fragments/try_result.html", _result(operation))


@require_GET
@page
def compare(request: HttpRequest, operation_id: uuid.UUID, other_id: uuid.UUID) -> HttpResponse:
    """Both answers again, until both operations have ended."""
    actor = actor_of(request)
    left, right = (operation_selectors.operation_get(actor, one) for one in (operation_id, other_id))
    return render(request, "web/fragments/try_compared.html", _compared(left, right))


def _answer(operation: Operation) -> dict[str, Any]:
    return operation.result if isinstance(operation.result, dict) else {}


def _result(operation: Operation) -> dict[str, Any]:
    answer = _answer(operation)
    params = operation.params if isinstance(operation.params, dict) else {}
    return {
        "operation": operation,
        "is_final": operation.state in FINAL,
        "outputs": [shortened(output) for output in outputs_of(answer)],
        "version": (answer.get("response") or {}).get("model_version", ""),
        "timing": latency_of(answer).parts(),
        "code": _clients(params) if operation.state == OperationState.SUCCEEDED else {},
    }


def _compared(left: Operation, right: Operation) -> dict[str, Any]:
    sides = [{**_result(one), "label": _side(one), "letter": letter} for one, letter in ((left, "A"), (right, "B"))]
    ours, theirs = _answer(left), _answer(right)
    both = left.state == right.state == OperationState.SUCCEEDED
    times = zip(latency_of(ours).named(), latency_of(theirs).named(), strict=True)
    return {
        "left": left,
        "right": right,
        "sides": sides,
        "is_final": left.state in FINAL and right.state in FINAL,
        "outputs": compared(outputs_of(ours), outputs_of(theirs)) if both else [],
        "latencies": [(name, a, b, _share(a, b)) for (name, a), (_name, b) in times if both],
    }


def _share(before: float | None, after: float | None) -> float | None:
    """Return by how much of the first the second is longer; None where that says nothing."""
    return None if not before or after is None else after / before - 1


def _side(operation: Operation) -> str:
    """Return which version and config an operation asks, as its unit still is; the unit's name when it is gone."""
    unit = str((operation.params or {}).get("unit", ""))
    routes = Route.objects.select_related("version", "config")
    route = routes.filter(deployment_id=operation.subject_id, unit=unit).first()
    return _label(route) if route is not None else unit


def _clients(params: dict[str, Any]) -> dict[str, str]:
    """Return the same request as curl and as Python, for a client that speaks to a node."""
    name = str(params.get("served_name", "model"))
    body = params.get("body") or {}
    return {"curl": equivalents.infer_curl(name, body), "python": equivalents.infer_python(name, body)}
