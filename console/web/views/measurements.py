"""Measurements of a version: the newest with its plot, the earlier ones, and the form that asks for another."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from console.web import equivalents
from console.web.forms.measurement import MeasurementForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.domain.measurements import default_batches
from registry.errors import RegistryError
from registry.models import ModelVersion, OperationState, VersionMeasurement
from registry.selectors import configs as config_selectors
from registry.selectors import fleet as fleet_selectors
from registry.selectors import measurements as selectors
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.selectors.measurements import ComparedMeasurement
from registry.services import measurements as services
from serving_node.contract.model_config import parse_json

MOST_LISTED = 20


@require_http_methods(["GET", "POST"])
@page
def measurements(request: HttpRequest, project: str, model: str, number: int) -> HttpResponse:
    """The page; ``?measurement=`` chooses an earlier one. A POST asks a worker to measure."""
    actor = actor_of(request)
    parent = model_selectors.model_get(actor, project, model)
    version = version_selectors.version_by_number(parent, number)
    nodes = selectors.nodes_measurable()
    revisions = list(config_selectors.configs_of(parent)[:50])
    initial = {"batch": ", ".join(map(str, default_batches(parse_json(revisions[0].body))))} if revisions else {}
    bound = request.POST if request.method == "POST" else None
    form = MeasurementForm(bound, nodes=nodes, configs=revisions, initial=initial)
    if form.is_valid():
        given = dict(form.cleaned_data)
        try:
            services.measurement_start(
                version=version,
                node=fleet_selectors.node_get(actor, given.pop("node")),
                config=config_selectors.config_by_number(parent, int(given.pop("config"))),
                actor=actor,
                **given,
            )
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("A worker measures it now; the figures appear here."))
            return redirect("web:measurements", project, model, number)
    listed = list(selectors.measurements_of(version)[:MOST_LISTED])
    wanted = request.GET.get("measurement")
    chosen = next((one for one in listed if str(one.pk) == wanted), listed[0] if listed else None)
    operation = selectors.measurement_operation(version)
    ended = operation is not None and operation.state == OperationState.SUCCEEDED
    context: dict[str, Any] = {
        "project": parent.project,
        "model": parent,
        "version": version,
        "form": form,
        "nodes": nodes,
        "listed": listed,
        "operation": None if ended else operation,
        "busy": busy_sentence(nodes),
        **measurement_context(chosen),
        **equivalent(project, model, version, form),
        **permissions(actor, version, "version.measure", "version.measure_guarded", "operation.cancel"),
    }
    topics = [f"version:{version.pk}", *([f"operation:{operation.pk}"] if operation is not None else [])]
    return render_page(
        request,
        "web/versions/measurements.html",
        context,
        project=parent.project,
        current="models",
        topics=topics,
        status=422 if form.is_bound else 200,
    )


def measurement_context(measurement: VersionMeasurement | None) -> dict[str, Any]:
    """Return what the table and the plot of a measurement show."""
    if measurement is None:
        return {"compared": None}
    compared = selectors.measurement_compared(measurement)
    return {"compared": compared, "plot": plot_of(compared)}


def plot_of(compared: ComparedMeasurement) -> dict[str, Any]:
    """Return the lines of the plots: for each instance count the figures by batch size, None where there are none."""
    batches = sorted({one.cell.batch for one in compared.cells})
    before = compared.before.version.number if compared.before is not None else None
    lines = []
    for count in sorted({one.cell.instances for one in compared.cells}):
        row = {one.cell.batch: one for one in compared.cells if one.cell.instances == count}
        cells = [row[batch].cell if batch in row and row[batch].cell.requests else None for batch in batches]
        label = ngettext("%(count)d instance", "%(count)d instances", count) % {"count": count}
        lines.append(_line(label, cells, is_before=False))
        earlier = [
            found if batch in row and (found := row[batch].before) is not None and found.requests else None
            for batch in batches
        ]
        if any(earlier):
            words = {"line": label, "number": before}
            lines.append(_line(_("%(line)s, v%(number)s (dashed)") % words, earlier, is_before=True))
    return {"batches": batches, "lines": lines}


def _line(label: str, cells: list[Any], *, is_before: bool) -> dict[str, Any]:
    return {
        "label": label,
        "before": is_before,
        "rows_per_second": [cell.rows_per_second if cell is not None else None for cell in cells],
        "latency_p99": [cell.latency_p99_ms / 1000 if cell is not None else None for cell in cells],
    }


def busy_sentence(nodes: list[Any]) -> str:
    """Return which of the nodes serve something now, as a warning; empty when none does."""
    serving = [
        node.name
        for node in nodes
        if (seen := fleet_selectors.observation_of(node)) is not None
        and any(unit.get("routed_weight") for unit in seen.units)
    ]
    if not serving:
        return ""
    return _("%(nodes)s serves requests now: measuring takes processor time and memory from them.") % {
        "nodes": ", ".join(serving)
    }


def equivalent(project: str, model: str, version: ModelVersion, form: MeasurementForm) -> dict[str, str]:
    """Return the call and the command that do what the form would."""
    node = next((label for _value, label in form.fields["node"].choices), "NODE")  # type: ignore[attr-defined]
    batch = str(form.get_initial_for_field(form.fields["batch"], "batch") or "1")
    sizes = [int(size) for size in batch.split(",")]
    body = {"node": node, "batch": sizes, "instances": [1]}
    path = f"projects/{project}/models/{model}/versions/{version.number}/measurements/"
    numbers = ",".join(map(str, sizes))
    command = f"flotilla bench-model {model} {version.number} --node {node} --batch {numbers} --instances 1"
    return {"curl": equivalents.curl("POST", path, body), "command": f"{command} --project {project}"}
