"""Try it: one prediction from the page. A worker asks the node; the page follows the operation."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.forms.try_it import FILLS, TryForm
from console.web.page import actor_of, page, permissions
from console.web.samples import sample_inputs
from console.web.views.models import tab
from registry.errors import NotFound, RegistryError
from registry.models import Deployment
from registry.models.operations import OperationState
from registry.selectors import deployments as deployment_selectors
from registry.selectors import models as model_selectors
from registry.selectors import operations as operation_selectors
from registry.services import operations as services

FINAL = {OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED}
MOST_VALUES = 200


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
        context |= {"form": _form(chosen), **permissions(actor, chosen, "deployment.infer")}
    return tab(request, one, "try", context)


def _form(deployment: Deployment, data: Any = None) -> TryForm:
    routes = deployment_selectors.deployment_status(deployment).routes
    first = next((route for route in routes if route.role == "live"), routes[0] if routes else None)
    samples = sample_inputs(first.version.signature if first else None)
    units = [(route.unit, f"v{route.version.number} ({route.get_role_display()})") for route in routes]
    return TryForm(samples, units, data)


@require_POST
@page
def run(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> HttpResponse:
    """Ask for the prediction; the answer is a fragment that follows the operation."""
    actor = actor_of(request)
    deployment = deployment_selectors.deployment_get(actor, deployment_id)
    if deployment.project.slug != project:
        raise NotFound(_("There is no such deployment."))
    form = _form(deployment, request.POST)
    if not form.is_valid():
        return render(request, "web/fragments/try_result.html", {"form": form})
    body = {"inputs": form.cleaned_data["inputs"]}
    try:
        operation = services.try_it(deployment=deployment, inputs=body, unit=form.cleaned_data["unit"], actor=actor)
    except RegistryError as error:
        return render(request, "web/fragments/try_result.html", {"error": error})
    return render(request, "web/fragments/try_result.html", _result(operation))


@require_GET
@page
def result(request: HttpRequest, operation_id: uuid.UUID) -> HttpResponse:
    """The fragment again, until the operation has ended."""
    operation = operation_selectors.operation_get(actor_of(request), operation_id)
    return render(request, "web/fragments/try_result.html", _result(operation))


def _result(operation: Any) -> dict[str, Any]:
    answer = operation.result if isinstance(operation.result, dict) else {}
    response = answer.get("response", answer)
    timing = answer.get("timing") or response.get("timing") or {}
    outputs = [_shortened(output) for output in response.get("outputs", []) if isinstance(output, dict)]
    params = operation.params if isinstance(operation.params, dict) else {}
    return {
        "operation": operation,
        "is_final": operation.state in FINAL,
        "outputs": outputs,
        "version": response.get("model_version", ""),
        "timing": _split(timing),
        "code": _clients(params) if operation.state == OperationState.SUCCEEDED else {},
    }


def _shortened(output: dict[str, Any]) -> dict[str, Any]:
    data = output.get("data", [])
    data = data if isinstance(data, list) else [data]
    return {**output, "data": data[:MOST_VALUES], "count": len(data), "is_cut": len(data) > MOST_VALUES}


def _split(timing: dict[str, Any]) -> list[tuple[str, float]]:
    """Return (name, seconds) of each part of the latency that the node and the worker reported."""
    names = {
        "total_us": _("Total, seen by the worker"),
        "network_us": _("Network"),
        "queue_us": _("Queue"),
        "compute_us": _("Compute"),
    }
    return [(label, float(timing[key]) / 1e6) for key, label in names.items() if timing.get(key) is not None]


def _clients(params: dict[str, Any]) -> dict[str, str]:
    """Return the same request as curl and as Python, for a client that speaks to a node."""
    name = str(params.get("served_name", "model"))
    body = params.get("body") or {}
    return {"curl": equivalents.infer_curl(name, body), "python": equivalents.infer_python(name, body)}
