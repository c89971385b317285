"""Config revisions: reading one, editing towards the next, and the judgement while typing."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.web import equivalents
from console.web.config_nodes import id_of
from console.web.forms.configs import ConfigForm, ConfigTextForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.errors import RegistryError
from registry.models import ConfigRevision, ModelVersion, RegisteredModel
from registry.selectors import configs as selectors
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.selectors.config_effects import config_effects
from registry.services import configs as services
from registry.services.config_copies import config_copy, config_revert, config_text_diff


@require_GET
@page
def config(request: HttpRequest, project: str, model: str, number: int) -> HttpResponse:
    """One revision as text, and what differs from another (``?against=``, else its parent)."""
    actor = actor_of(request)
    parent = model_selectors.model_get(actor, project, model)
    one = selectors.config_by_number(parent, number)
    revisions = list(selectors.configs_of(parent)[:100])
    against = _against(request, parent, one, revisions)
    context = {
        "project": parent.project,
        "model": parent,
        "config": one,
        "pbtxt": services.config_pbtxt(one.body),
        "against": against,
        "changes": services.config_diff(against, one) if against else [],
        "as_text": request.GET.get("as") == "text",
        "text_diff": config_text_diff(against, one).splitlines() if against else [],
        "is_newest": bool(revisions) and revisions[0].pk == one.pk,
        "targets": list(parent.project.models.exclude(pk=parent.pk).order_by("slug")[:200]),
        "revisions": [revision for revision in revisions if revision.pk != one.pk],
        "curl": equivalents.curl("GET", f"projects/{project}/models/{model}/configs/{number}/"),
        **permissions(actor, parent, "config.write", "deployment.change"),
    }
    return render_page(request, "web/configs/detail.html", context, project=parent.project, current="models")


@require_POST
@page
def revert(request: HttpRequest, project: str, model: str, number: int) -> HttpResponse:
    """Store this revision's content as the newest."""
    actor = actor_of(request)
    parent = model_selectors.model_get(actor, project, model)
    made = config_revert(model=parent, revision=selectors.config_by_number(parent, number), actor=actor)
    messages.success(request, _("Config %(number)d is saved. Deploy it to use it.") % {"number": made.number})
    return redirect("web:config", project, model, made.number)


@require_POST
@page
def copy(request: HttpRequest, project: str, model: str, number: int) -> HttpResponse:
    """Store this revision as the next of another model of the project."""
    actor = actor_of(request)
    source = selectors.config_by_number(model_selectors.model_get(actor, project, model), number)
    target = model_selectors.model_get(actor, project, request.POST.get("to", ""))
    made = config_copy(source=source, target=target, actor=actor)
    told = _("Config %(number)d of %(model)s is saved. Deploy it to use it.")
    messages.success(request, told % {"number": made.number, "model": target.slug})
    return redirect("web:config", project, target.slug, made.number)


def _against(
    request: HttpRequest, model: RegisteredModel, one: ConfigRevision, revisions: list[ConfigRevision]
) -> ConfigRevision | None:
    wanted = request.GET.get("against", "")
    if wanted.isdigit():
        return selectors.config_by_number(model, int(wanted))
    older = [revision for revision in revisions if revision.number < one.number]
    return one.parent or (older[0] if older else None)


def _judged(model: RegisteredModel) -> ModelVersion | None:
    """Return the version whose signature the config must fit: the newest ready one."""
    return version_selectors.versions_deployable(model).first()


def _base(model: RegisteredModel, number: str) -> ConfigRevision | None:
    if number.isdigit() and int(number):
        return selectors.config_by_number(model, int(number))
    return selectors.config_latest(model)


@require_http_methods(["GET", "POST"])
@page
def new(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """The editor. A POST stores the next revision; errors come back at their fields with everything that was typed."""
    actor = actor_of(request)
    parent = model_selectors.model_get(actor, project, model)
    posted = request.POST if request.method == "POST" else None
    base = _base(parent, (posted or request.GET).get("base", ""))
    as_text = (posted or request.GET).get("as") == "text"
    body = base.body if base else {"name": parent.slug, "max_batch_size": 0}
    form = ConfigForm(body, None if as_text else posted)
    text_form = _text_form(body, posted if as_text else None)
    active: ConfigForm | ConfigTextForm = text_form if as_text else form
    if posted is not None and active.is_valid():
        saved = _save(request, parent, base, active)
        if saved is not None:
            return redirect("web:config", project, model, saved.number)
    context = {
        "project": parent.project,
        "model": parent,
        "base": base,
        "form": form,
        "text_form": text_form,
        "as_text": as_text,
        "preview": _preview(parent, base, body) if posted is None else _typed_preview(parent, base, active),
        "deployments": model_selectors.model_overview(parent).deployments,
        **permissions(actor, parent, "config.write"),
    }
    status = 422 if posted is not None else 200
    return render_page(
        request, "web/configs/edit.html", context, project=parent.project, current="models", status=status
    )


def _text_form(body: dict[str, Any], data: Any) -> ConfigTextForm:
    return ConfigTextForm(data, initial={"format": "pbtxt", "text": services.config_pbtxt(body)})


def _arguments(form: ConfigForm | ConfigTextForm) -> dict[str, Any]:
    """Return what the config services take for a valid form."""
    if isinstance(form, ConfigForm):
        return {"body": form.body, "format": "form"}
    return {"text": form.cleaned_data["text"], "format": form.cleaned_data["format"]}


def _save(
    request: HttpRequest, model: RegisteredModel, base: ConfigRevision | None, form: ConfigForm | ConfigTextForm
) -> ConfigRevision | None:
    arguments = _arguments(form)
    report = services.config_check(model=model, version=_judged(model), **arguments)
    if not report.ok:
        _show(form, report.errors)
        return None
    try:
        saved = services.config_create(
            model=model, parent=base, comment=form.cleaned_data["comment"], actor=actor_of(request), **arguments
        )
    except RegistryError as error:
        if error.errors:
            _show(form, error.errors)
        else:
            add_errors(form, error)
        return None
    if base is not None and saved.pk == base.pk:
        messages.info(request, _("Nothing changed: this is config %(number)d already.") % {"number": saved.number})
    else:
        messages.success(request, _("Config %(number)d is saved. Deploy it to use it.") % {"number": saved.number})
    return saved


def _show(form: ConfigForm | ConfigTextForm, errors: Any) -> None:
    if isinstance(form, ConfigForm):
        form.show(errors)
        return
    for problem in errors:
        field = problem.get("field", "")
        form.add_error("text", f"{field}: {problem['message']}" if field else problem["message"])


def _preview(
    model: RegisteredModel, base: ConfigRevision | None, body: dict[str, Any], format: str = "form"
) -> dict[str, Any]:
    report = services.config_check(model=model, body=body, format=format, version=_judged(model))
    return _preview_of(model, base, report)


def _preview_of(model: RegisteredModel, base: ConfigRevision | None, report: services.ConfigReport) -> dict[str, Any]:
    path = f"projects/{model.project.slug}/models/{model.slug}/configs/"
    return {
        "report": report,
        "changes": services.config_diff(base, report.body) if base and report.body else [],
        "effects": config_effects(model, report.body, report.digest, timezone.now())
        if report.ok and report.body
        else (),
        "base": base,
        "curl": equivalents.curl("POST", path, {"body": report.body, "format": "json"}) if report.body else "",
    }


def _typed_preview(
    model: RegisteredModel, base: ConfigRevision | None, form: ConfigForm | ConfigTextForm
) -> dict[str, Any]:
    """Return the preview of what was typed; one without a report when it could not even be read."""
    try:
        arguments = _arguments(form)
    except KeyError:  # A field was unreadable, so it is missing from cleaned_data.
        return {"report": None, "base": base}
    report = services.config_check(model=model, version=_judged(model), **arguments)
    return _preview_of(model, base, report)


@require_POST
@page
def check(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Judge what is typed so far: the right-hand side, and each field's errors beside their fields."""
    parent = model_selectors.model_get(actor_of(request), project, model)
    base = _base(parent, request.POST.get("base", ""))
    body = base.body if base else {"name": parent.slug, "max_batch_size": 0}
    as_text = request.POST.get("as") == "text"
    form: ConfigForm | ConfigTextForm = _text_form(body, request.POST) if as_text else ConfigForm(body, request.POST)
    preview: dict[str, Any] = {"report": None, "base": base}
    if form.is_valid():
        preview = _typed_preview(parent, base, form)
        _show(form, preview["report"].errors)
    found = form.problems() if isinstance(form, ConfigForm) else {}
    problems = [(id_of(name), sentences) for name, sentences in found.items()]
    context = {"form": form, "preview": preview, "problems": problems, "as_text": as_text, "is_partial": True}
    return render(request, "web/fragments/config_preview.html", context)
