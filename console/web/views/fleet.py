"""The fleet and its nodes. What is shown is what workers observed, with its age."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.templatetags.flotilla import size
from console.web import equivalents
from console.web.charts import SPANS, span_of
from console.web.forms.settings import JoinForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from console.web.undo import done
from registry.domain.actors import Actor
from registry.errors import RegistryError, ValidationFailed
from registry.models import NodeObservation
from registry.selectors import deployments as deployment_selectors
from registry.selectors import fleet as selectors
from registry.selectors.draining import drain_effects
from registry.services import fleet as services
from serving_node.contract.control import SCRATCH_PREFIX


@require_GET
@page
def fleet(request: HttpRequest) -> HttpResponse:
    """All nodes, filtered by fleet in the address."""
    actor = actor_of(request)
    wanted = request.GET.get("fleet", "")
    rows = selectors.node_rows()
    if wanted:
        rows = [row for row in rows if any(one.slug == wanted for one in row.fleets)]
    context = {
        "rows": rows,
        "fleets": list(selectors.fleets()),
        "fleet": wanted,
        **permissions(actor, None, "site.fleet"),
    }
    return render_page(request, "web/fleet/list.html", context, current="fleet", topics=[] if wanted else ["fleet"])


@require_http_methods(["GET", "POST"])
@page
def join(request: HttpRequest) -> HttpResponse:
    """Make a one-time token and show the command with which a machine joins."""
    actor = actor_of(request)
    form = JoinForm(request.POST or None, initial={"labels": "development=yes"})
    command = ""
    if request.method == "POST" and form.is_valid():
        try:
            _token, text = services.join_token_create(labels=form.cleaned_data["labels"], actor=actor)
        except RegistryError as error:
            add_errors(form, error)
        else:
            command = equivalents.join(text)
    context = {
        "form": form,
        "command": command,
        "curl": equivalents.curl("POST", "join-tokens/", {"labels": {"development": "yes"}}),
        **permissions(actor, None, "site.fleet"),
    }
    status = 422 if form.is_bound and not command else 200
    response = render_page(request, "web/fleet/join.html", context, current="fleet", topics=["fleet"], status=status)
    if command:
        response["Cache-Control"] = "no-store"
    return response


@require_GET
@page
def node(request: HttpRequest, node_id: uuid.UUID) -> HttpResponse:
    """One node: state, inventory, what it holds, its load."""
    actor = actor_of(request)
    one = selectors.node_get(actor, node_id)
    now = timezone.now()
    row = selectors.node_row(one, now)
    span = span_of(request)
    context = {
        "node": one,
        "row": row,
        "units": _units(actor, row.observation),
        "facts": _facts(one.inventory),
        "gpus": one.inventory.get("gpus") or [],
        "span": span,
        "span_seconds": SPANS[span][0],
        "spans": [(name, label) for name, (_seconds, label) in SPANS.items()],
        "now": now,
        "effects": drain_effects(actor, one, now),
        "cordon_curl": equivalents.curl("POST", f"nodes/{one.pk}/{'cordon' if one.is_schedulable else 'uncordon'}"),
        "drain_curl": equivalents.curl("POST", f"nodes/{one.pk}/drain", {"deadline_seconds": 60}),
        **permissions(actor, None, "site.fleet"),
    }
    topics = [f"node:{one.pk}", "metrics"]
    return render_page(request, "web/fleet/node.html", context, current="fleet", topics=topics)


def _facts(inventory: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a node says about its machine as (name, text), empty values and GPUs left out."""
    facts = []
    for name, value in inventory.items():
        if name == "gpus" or value in ("", None, [], {}):
            continue
        if name.endswith("_bytes") and isinstance(value, int | float):
            facts.append((name.removesuffix("_bytes"), size(value)))
        elif isinstance(value, dict):
            facts.append((name, ", ".join(f"{key} {part}" for key, part in value.items())))
        else:
            facts.append((name, str(value)))
    return facts


def _units(actor: Actor, observation: NodeObservation | None) -> list[dict[str, object]]:
    """Return the node's units; under the name "" those of other people's projects as a count, and copies measured."""
    if observation is None:
        return []
    names = dict(deployment_selectors.deployments_visible_to(actor).values_list("served_name", "pk"))
    projects = dict(deployment_selectors.deployments_visible_to(actor).values_list("served_name", "project__slug"))
    seen: list[dict[str, object]] = []
    hidden = 0
    for unit in observation.units:
        name = str(unit.get("name", ""))
        if name.startswith(SCRATCH_PREFIX):
            seen.append({"name": "", "is_scratch": True})
        elif name in names:
            seen.append({**unit, "deployment": names[name], "project": projects[name]})
        else:
            hidden += 1
    return [*seen, {"name": "", "count": hidden}] if hidden else seen


@require_POST
@page
def node_act(request: HttpRequest, node_id: uuid.UUID) -> HttpResponse:
    """Cordon, uncordon, drain or retire a node."""
    actor = actor_of(request)
    one = selectors.node_get(actor, node_id)
    match request.POST.get("act"):
        case "cordon":
            services.node_cordon(node=one, actor=actor)
            done(request, _("New deployments stay off this node."), request.path, act="uncordon")
        case "uncordon":
            services.node_uncordon(node=one, actor=actor)
            done(request, _("The node takes deployments again."), request.path, act="cordon")
        case "drain":
            services.node_drain(node=one, actor=actor)
            messages.success(request, _("The node finishes its requests and takes no more."))
        case "retire":
            if request.POST.get("confirm") != one.name:
                messages.error(request, _("Type the node's name to retire it."))
                return redirect("web:node", node_id)
            services.node_retire(node=one, actor=actor)
            messages.success(request, _("%(name)s is retired; its token no longer works.") % {"name": one.name})
            return redirect("web:fleet")
        case _other:
            raise ValidationFailed(_("There is no such action."))
    return redirect("web:node", node_id)
