"""Models: the list, the making of one, and the tabs of a model's page."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.web import equivalents
from console.web.charts import chart_context
from console.web.forms.models import ModelEditForm, ModelForm, model_facts
from console.web.keyset import keyset_page
from console.web.page import actor_of, add_errors, page, permissions, render_page
from console.web.undo import done
from registry.domain.actors import Actor
from registry.domain.model_facts import TASKS
from registry.errors import RegistryError, ValidationFailed
from registry.models import RegisteredModel
from registry.selectors import accounts, audit, version_facts
from registry.selectors import configs as config_selectors
from registry.selectors import deployments as deployment_selectors
from registry.selectors import models as selectors
from registry.selectors import versions as version_selectors
from registry.selectors.aliases import about_aliases
from registry.selectors.models import ModelOverview
from registry.services import models as services
from registry.services.locking import held

PAGE_SIZE = 25
LIST_SIZE = 50


@require_GET
@page
def model_list(request: HttpRequest, project: str) -> HttpResponse:
    """A project's models; with none, how to get the first one in."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    wanted = selectors.ModelFilter(
        search=request.GET.get("q", "").strip(),
        task=request.GET.get("task", ""),
        tag=request.GET.get("tag", "").strip(),
        owner=request.GET.get("owner", ""),
        state=request.GET.get("state", "active"),
    )
    rows = selectors.model_rows(room, wanted=wanted, after=request.GET.get("after", ""), limit=LIST_SIZE + 1)
    has_more, rows = len(rows) > LIST_SIZE, rows[:LIST_SIZE]
    owners, tasks = selectors.owners_and_tasks(room)
    context = {
        "next": rows[-1].model.slug if has_more else "",
        "is_later": "after" in request.GET,
        "project": room,
        "rows": rows,
        "wanted": wanted,
        "is_filtered": wanted != selectors.ModelFilter(),
        "owners": owners,
        "tasks": tasks,
        "push": equivalents.push(room.slug, "sentiment"),
        **permissions(actor, room, "model.write"),
    }
    topics = [f"project:{room.pk}", *(f"model:{row.model.pk}" for row in rows[:40])]
    return render_page(request, "web/models/list.html", context, project=room, current="models", topics=topics)


@require_http_methods(["GET", "POST"])
@page
def model_new(request: HttpRequest, project: str) -> HttpResponse:
    """Make a model without a version yet."""
    actor = actor_of(request)
    room = accounts.project_get(actor, project)
    form = ModelForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.model_create(project=room, actor=actor, **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Model %(name)s is made.") % {"name": made.slug})
            return redirect("web:model", room.slug, made.slug)
    body = {"slug": "sentiment", "description": "", "task": ""}
    context = {
        "project": room,
        "form": form,
        "tasks": TASKS,
        "curl": equivalents.curl("POST", f"projects/{room.slug}/models/", body),
        **permissions(actor, room, "model.write"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/models/new.html", context, project=room, current="models", status=status)


@require_http_methods(["GET", "POST"])
@page
def edit(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """What is said about a model, and putting it away."""
    actor, one = _model(request, project, model)
    owners = [row.user.username for row in accounts.members_of(one.project)]
    form = ModelEditForm(request.POST or None, model=one, owners=owners)
    if request.method == "POST" and form.is_valid():
        try:
            with held(one) as now:
                is_saved = form.is_current(model_facts(now))
                if is_saved:
                    given = form.cleaned_data
                    owner = accounts.member_named(now.project, given.pop("owner"))
                    services.model_update(model=now, **given, owner=owner, actor=actor)
        except RegistryError as error:
            add_errors(form, error)
        else:
            if is_saved:
                messages.success(request, _("Saved."))
                return redirect("web:model", project, model)
    one = selectors.model_get(actor, project, model)
    context = {
        "form": form,
        "tasks": TASKS,
        "impact": selectors.model_impact(one),
        "serving": selectors.deployments_serving(one),
        "curl": equivalents.curl("PATCH", f"projects/{project}/models/{model}/", {"task": one.task or TASKS[0]}),
        **permissions(actor, one, "model.manage"),
    }
    response = tab(request, one, "edit", context)
    response.status_code = 422 if form.is_bound else 200
    return response


@require_POST
@page
def act(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Archive, restore or delete a model."""
    actor, one = _model(request, project, model)
    match request.POST.get("act"):
        case "archive":
            services.model_archive(model=one, actor=actor)
            done(request, _("The model is archived."), request.path, act="restore")
        case "restore":
            services.model_restore(model=one, actor=actor)
            done(request, _("The model is active again."), request.path, act="archive")
        case "delete":
            if request.POST.get("confirm", "").strip() != one.slug:
                messages.error(request, _("Nothing was deleted: type the model's name to confirm."))
                return redirect("web:model-edit", project, model)
            services.model_delete(model=one, actor=actor)
            messages.success(request, _("The model %(name)s is deleted.") % {"name": model})
            return redirect("web:models", project)
        case _other:
            raise ValidationFailed(_("There is no such action."))
    return redirect("web:model-edit", project, model)


def tab(
    request: HttpRequest,
    model: RegisteredModel,
    name: str,
    context: dict[str, Any],
    *,
    topics: tuple[str, ...] = (),
    overview: ModelOverview | None = None,
) -> HttpResponse:
    """Return one tab of a model's page under its common head. ``overview``: what the head shows, if it is known."""
    actor = actor_of(request)
    overview = overview or selectors.model_overview(model)
    head = {
        "project": model.project,
        "model": model,
        "overview": overview,
        "tab": name,
        **permissions(actor, model, "model.write", "version.write", "config.write", "deployment.change"),
    }
    follow = (f"model:{model.pk}", *(f"deployment:{one.pk}" for one in overview.deployments), *topics)
    template = f"web/models/tab_{name}.html"
    return render_page(
        request, template, {**head, **context}, project=model.project, current="models", topics=dict.fromkeys(follow)
    )


def _model(request: HttpRequest, project: str, model: str) -> tuple[Actor, RegisteredModel]:
    actor = actor_of(request)
    return actor, selectors.model_get(actor, project, model)


@require_GET
@page
def overview(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """What runs where, the newest versions, and the last hour's charts."""
    _actor, one = _model(request, project, model)
    seen = selectors.model_overview(one)
    served = list(seen.deployments)
    context = {
        "versions": version_selectors.version_rows_of(seen, [*version_selectors.versions_shown(one)[:5]]),
        "statuses": deployment_selectors.deployment_statuses(served),
        "push": equivalents.push(project, one.slug),
        **chart_context(request, served),
    }
    return tab(request, one, "overview", context, overview=seen)


@require_GET
@page
def versions(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Versions, newest first, a page at a time."""
    _actor, one = _model(request, project, model)
    seen = selectors.model_overview(one)
    shown = keyset_page(request, version_selectors.versions_shown(one), PAGE_SIZE)
    rows = version_selectors.version_rows_of(seen, shown.object_list)
    following = tuple(f"version:{row.version.pk}" for row in rows if row.version.state in {"uploading", "validating"})
    context = {
        "rows": rows,
        "page": shown,
        "push": equivalents.push(project, one.slug),
        "metrics": version_facts.metric_names(one),
        **_ranking(request, one),
    }
    return tab(request, one, "versions", context, topics=following, overview=seen)


def _ranking(request: HttpRequest, model: RegisteredModel) -> dict[str, Any]:
    """Return the versions in order of ``?metric=``, highest first or, with ``?order=lowest``, lowest."""
    metric, order = request.GET.get("metric", "")[:64], request.GET.get("order", "highest")
    if not metric:
        return {}
    ranked = list(version_facts.versions_ranked(model, metric, is_lowest=order == "lowest"))
    return {"metric": metric, "order": order, "ranked": ranked}


@require_GET
@page
def configs(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """All config revisions, newest first."""
    _actor, one = _model(request, project, model)
    return tab(request, one, "configs", {"revisions": list(config_selectors.configs_of(one).select_related("author"))})


@require_GET
@page
def deployments(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Where the model runs."""
    _actor, one = _model(request, project, model)
    seen = selectors.model_overview(one)
    statuses = deployment_selectors.deployment_statuses(seen.deployments)
    return tab(request, one, "deployments", {"statuses": statuses}, overview=seen)


@require_GET
@page
def metrics(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Charts of one deployment of the model, chosen in the address."""
    _actor, one = _model(request, project, model)
    seen = selectors.model_overview(one)
    return tab(request, one, "metrics", chart_context(request, list(seen.deployments)), overview=seen)


@require_GET
@page
def activity(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """What people and tokens did to the model and its deployments."""
    actor, one = _model(request, project, model)
    seen = selectors.model_overview(one)
    ids = [str(one.pk), *(str(deployment.pk) for deployment in seen.deployments)]
    ids += [
        str(pk)
        for pk in version_selectors.versions_visible_to(actor).filter(model=one).values_list("pk", flat=True)[:200]
    ]
    ids += [str(pk) for pk in config_selectors.configs_of(one).values_list("pk", flat=True)[:200]]
    events = audit.audit_visible_to(actor).filter(Q(object_id__in=ids) | about_aliases(one))[:100]
    return tab(request, one, "activity", {"events": list(events)}, overview=seen)
