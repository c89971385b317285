"""Home: what needs a person now, and the way to the first served model. The jump palette."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.web import equivalents
from console.web.page import actor_of, frame_of, page, render_page
from registry.selectors import aliases, approvals, audit, deployments, fleet, models

MOST_RESULTS = 12
ALIASES_SHOWN = 8


@require_GET
@page
def home(request: HttpRequest) -> HttpResponse:
    """The state of the current project at a glance."""
    actor = actor_of(request)
    project = frame_of(request, None, "home").project
    if project is None:
        return render_page(request, "web/home_empty.html", {}, current="home")
    served = list(deployments.deployments_of(project))
    nodes = fleet.node_rows()
    context = {
        "project": project,
        "model_count": project.models.count(),
        "aliases": list(aliases.aliases_moved(project)[:ALIASES_SHOWN]),
        "deployments": served,
        "troubled": [one for one in served if one.health in {"degraded", "unknown"} or one.sync == "out_of_sync"],
        "nodes": nodes,
        "nodes_reachable": sum(row.is_reachable for row in nodes),
        "waiting": list(approvals.inbox(actor)[:5]),
        "events": list(audit.audit_visible_to(actor).filter(project_id=project.pk)[:10]),
        "push": equivalents.push(project.slug, "sentiment"),
    }
    topics = [f"project:{project.pk}", "fleet", *(f"deployment:{one.pk}" for one in served[:20])]
    return render_page(request, "web/home.html", context, project=project, current="home", topics=topics)


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of the palette."""

    label: str
    detail: str
    icon: str
    url: str


@require_GET
@page
def jump(request: HttpRequest) -> HttpResponse:
    """Return what matches the words typed: pages, models, deployments, nodes. Only what the viewer may see."""
    words = request.GET.get("q", "").lower().split()
    hits = [hit for hit in _hits(request) if all(word in f"{hit.label} {hit.detail}".lower() for word in words)]
    return render(request, "web/fragments/jump.html", {"hits": hits[:MOST_RESULTS]})


def _hits(request: HttpRequest) -> list[Hit]:
    actor = actor_of(request)
    frame = frame_of(request, None, "")
    hits = [Hit(str(entry.label), _("Page"), entry.icon, entry.url) for entry in frame.navigation]
    if frame.project is not None:
        slug = frame.project.slug
        hits.append(Hit(_("Upload a version"), _("Action"), "cloud-upload", reverse("web:upload", args=[slug])))
        hits.append(Hit(_("New model"), _("Action"), "plus", reverse("web:model-new", args=[slug])))
    hits.append(Hit(_("API keys"), _("Settings"), "key-round", reverse("web:tokens")))
    hits.append(Hit(_("Environments"), _("Settings"), "shield", reverse("web:environments")))
    for model in models.models_visible_to(actor)[:500]:
        where = _("Model in %(project)s") % {"project": model.project.slug}
        hits.append(Hit(model.slug, where, "box", reverse("web:model", args=[model.project.slug, model.slug])))
    for one in deployments.deployments_visible_to(actor)[:500]:
        label = _("%(name)s on %(fleet)s") % {"name": one.served_name, "fleet": one.fleet.slug}
        hits.append(Hit(label, _("Deployment"), "rocket", reverse("web:deployment", args=[one.project.slug, one.pk])))
    for node in fleet.nodes_visible_to(actor)[:500]:
        hits.append(Hit(node.name, _("Node"), "server", reverse("web:node", args=[node.pk])))
    return hits
