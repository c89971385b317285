"""The fleet as a heat map: nodes against models, or against their hardware."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.templatetags.flotilla import seconds, status_label
from console.web import equivalents
from console.web.heat import Cell, legend, step_of, top_of
from console.web.page import actor_of, page, render_page
from registry.domain.actors import Actor
from registry.models import Deployment
from registry.selectors import fleet as fleet_selectors
from registry.selectors import heat as selectors
from registry.selectors.deployments import deployments_visible_to
from registry.selectors.fleet import NodeRow

NODES_SHOWN = 200
MODELS_SHOWN = 40
SHOWS: Mapping[str, str | Promise] = {
    "state": gettext_lazy("States of models"),
    "request_rate": gettext_lazy("Requests/s"),
    "failures": gettext_lazy("Failed requests"),
    "latency_p99": gettext_lazy("p99 latency"),
    "queue_p99": gettext_lazy("p99 queue time"),
    "hardware": gettext_lazy("Use of hardware"),
}
_HARDWARE: Mapping[str, str | Promise] = {
    "cpu": gettext_lazy("CPU"),
    "memory": gettext_lazy("Memory"),
    "gpu": gettext_lazy("GPU"),
    "gpu_memory": gettext_lazy("GPU memory"),
}


@require_GET
@page
def heat(request: HttpRequest) -> HttpResponse:
    """Every node against every model that the viewer may see; what is shown, fleet and filter are in the address."""
    actor = actor_of(request)
    show = request.GET.get("show", "state")
    show = show if show in SHOWS else "state"
    wanted, search = request.GET.get("fleet", ""), request.GET.get("q", "").strip().lower()
    nodes = [row for row in fleet_selectors.node_rows() if not wanted or any(one.slug == wanted for one in row.fleets)]
    shown = nodes[:NODES_SHOWN]
    served = {} if show == "hardware" else _served(actor, wanted, search)
    table = _hardware(shown) if show == "hardware" else _models(show, shown, served)
    context = {
        **table,
        "show": show,
        "shows": SHOWS.items(),
        "label": SHOWS[show],
        "fleets": list(fleet_selectors.fleets()),
        "fleet": wanted,
        "search": search,
        "hidden_nodes": len(nodes) - len(shown),
        "hidden_models": max(0, len(served) - MODELS_SHOWN),
        "curl": equivalents.curl("GET", _same(show, wanted, served)),
    }
    return render_page(request, "web/fleet/heat.html", context, current="fleet", topics=["fleet", "metrics"])


def _same(show: str, fleet: str, served: Mapping[str, list[Deployment]]) -> str:
    """Return the address of the API that has the same, of one deployment where it is about models."""
    first = next(iter(served.values()), None)
    if show == "state" or (show != "hardware" and first is None):
        return "nodes/"
    metric = "cpu,memory,gpu,gpu_memory" if show == "hardware" else "failure_rate" if show == "failures" else show
    about = f"&fleet={fleet}" if fleet else f"&deployment={first[0].pk}" if first and show != "hardware" else ""
    return f"metrics/query?metric={metric}&by=node&range_seconds=60{about}"


def _served(actor: Actor, fleet: str, search: str) -> dict[str, list[Deployment]]:
    """Return the deployments that the viewer may see by their served name, in the order of names."""
    rows = deployments_visible_to(actor).exclude(routes=None).order_by("served_name").distinct()
    if fleet:
        rows = rows.filter(fleet__slug=fleet)
    if search:
        rows = rows.filter(served_name__icontains=search)
    served: dict[str, list[Deployment]] = {}
    for row in rows:
        served.setdefault(row.served_name, []).append(row)
    return served


def _models(show: str, nodes: Sequence[NodeRow], served: Mapping[str, list[Deployment]]) -> dict[str, Any]:
    names = list(served)[:MODELS_SHOWN]
    addresses = {
        (fleet, name): reverse("web:deployment", args=[one.project.slug, one.pk])
        for name in names
        for one in served[name]
        for fleet in [one.fleet_id]
    }

    def address(row: NodeRow, name: str) -> str:
        return next((addresses[fleet.pk, name] for fleet in row.fleets if (fleet.pk, name) in addresses), "")

    if show == "state":
        states = selectors.states_of([row.observation for row in nodes if row.observation is not None], names)
        return _table(nodes, [(name, name) for name in names], lambda row, name: _state(row, name, states, address), [])
    values = selectors.model_heat(show, [row.node.pk for row in nodes], names, timezone.now())
    top = top_of([*values.values()], is_share=show == "failures")
    text = _percent if show == "failures" else _per_second if show == "request_rate" else seconds

    def cell(row: NodeRow, name: str) -> Cell:
        value, where = values.get((row.node.pk, name)), address(row, name)
        return Cell(_key(row, name), text(value) if value is not None else "", step_of(value, top), where)

    return _table(nodes, [(name, name) for name in names], cell, legend(top, text))


def _state(
    row: NodeRow,
    name: str,
    states: Mapping[tuple[uuid.UUID, str], str],
    address: Callable[[NodeRow, str], str],
) -> Cell:
    where = address(row, name)
    state = states.get((row.node.pk, name), "absent" if where else "")
    return Cell(_key(row, name), status_label(state) if state else "", 0, where, state)


def _hardware(nodes: Sequence[NodeRow]) -> dict[str, Any]:
    values = selectors.hardware_heat([row.node.pk for row in nodes], timezone.now())

    def cell(row: NodeRow, name: str) -> Cell:
        value = values.get((row.node.pk, name))
        text = _percent(value) if value is not None else ""
        return Cell(_key(row, name), text, step_of(value, 1.0), reverse("web:node", args=[row.node.pk]))

    return _table(nodes, list(_HARDWARE.items()), cell, legend(1.0, _percent))


def _table(
    nodes: Sequence[NodeRow],
    columns: Sequence[tuple[str, str | Promise]],
    cell: Callable[[NodeRow, str], Cell],
    steps: Sequence[tuple[int, str]],
) -> dict[str, Any]:
    return {
        "columns": [label for _name, label in columns],
        "rows": [(row, [cell(row, name) for name, _label in columns]) for row in nodes],
        "legend": steps,
    }


def _key(row: NodeRow, name: str) -> str:
    return f"{row.node.pk}-{name}"


def _percent(value: float) -> str:
    return f"{value * 100:.0f} %" if value >= 0.1 or value == 0 else f"{value * 100:.1f} %"


def _per_second(value: float) -> str:
    return _("%(rate)s/s") % {"rate": f"{value:.0f}" if value >= 10 else f"{value:.1f}"}
