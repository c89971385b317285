"""Logs of nodes on the pages of a node and of a deployment. A worker fetches them; the page follows the operation."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web.page import actor_of, page
from console.web.views.try_it import FINAL
from registry.errors import NotFound, RegistryError
from registry.models import Operation
from registry.selectors.deployments import deployment_get
from registry.selectors.fleet import node_get
from registry.selectors.operations import operation_get
from registry.services import logs as services

_TEMPLATE = "web/fragments/logs.html"


@require_POST
@page
def node_logs(request: HttpRequest, node_id: uuid.UUID) -> HttpResponse:
    """Ask for the log of a node; the answer is a fragment that follows the operation."""
    actor = actor_of(request)
    try:
        operation = services.node_logs(node=node_get(actor, node_id), actor=actor)
    except RegistryError as error:
        return render(request, _TEMPLATE, {"error": error})
    return _answer(request, operation)


@require_POST
@page
def deployment_logs(request: HttpRequest, project: str, deployment_id: uuid.UUID) -> HttpResponse:
    """Ask the nodes of a deployment what they log about it."""
    actor = actor_of(request)
    deployment = deployment_get(actor, deployment_id)
    if deployment.project.slug != project:
        raise NotFound(_("There is no such deployment."))
    try:
        operation = services.deployment_logs(deployment=deployment, actor=actor)
    except RegistryError as error:
        return render(request, _TEMPLATE, {"error": error})
    return _answer(request, operation)


@require_GET
@page
def logs(request: HttpRequest, operation_id: uuid.UUID) -> HttpResponse:
    """The fragment again, until the operation has ended."""
    return _answer(request, operation_get(actor_of(request), operation_id))


def _answer(request: HttpRequest, operation: Operation) -> HttpResponse:
    result: Any = operation.result if isinstance(operation.result, dict) else {}
    context = {"operation": operation, "is_final": operation.state in FINAL, "nodes": result.get("nodes", [])}
    return render(request, _TEMPLATE, context)
