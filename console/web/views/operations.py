"""Operations: long work with its progress, log and outcome."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web.keyset import keyset_page
from console.web.page import actor_of, page, permissions, render_page
from registry.models.operations import OperationState
from registry.selectors import operations as selectors
from registry.services import operations as services

PAGE_SIZE = 50


@require_GET
@page
def operation_list(request: HttpRequest) -> HttpResponse:
    """The viewer's operations, newest first, filtered by state and kind in the address."""
    actor = actor_of(request)
    rows = selectors.operations_visible_to(actor)
    state, kind = request.GET.get("state", ""), request.GET.get("kind", "")
    if state in OperationState.values:
        rows = rows.filter(state=state)
    if kind:
        rows = rows.filter(kind=kind)
    context = {
        "page": keyset_page(request, rows, PAGE_SIZE),
        "state": state,
        "kind": kind,
        "states": OperationState.choices,
        "kinds": [
            ("validate_version", _("Check a version")),
            ("fetch_version", _("Fetch from an address")),
            ("deploy", _("Deploy")),
            ("infer", _("Try it")),
            ("bench_model", _("Measure a version")),
        ],
    }
    return render_page(request, "web/operations/list.html", context, current="operations")


@require_GET
@page
def operation(request: HttpRequest, operation_id: uuid.UUID) -> HttpResponse:
    """One operation, live."""
    actor = actor_of(request)
    one = selectors.operation_get(actor, operation_id)
    context = {"operation": one, **permissions(actor, one, "operation.cancel")}
    topics = [f"operation:{one.pk}"]
    return render_page(
        request, "web/operations/detail.html", context, project=one.project, current="operations", topics=topics
    )


@require_POST
@page
def cancel(request: HttpRequest, operation_id: uuid.UUID) -> HttpResponse:
    """Ask an operation to stop."""
    actor = actor_of(request)
    services.operation_cancel(operation=selectors.operation_get(actor, operation_id), actor=actor)
    messages.success(request, _("The operation is asked to stop."))
    return redirect("web:operation", operation_id)
