"""Aliases of a model: where they point, moving them after a look at what that means, and their history."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.web import equivalents
from console.web.forms.aliases import AliasForm
from console.web.page import actor_of, add_errors, page, permissions
from console.web.undo import done
from console.web.views.models import tab
from registry.domain.aliases import LATEST, alias_problem
from registry.errors import RegistryError
from registry.models import Alias, RegisteredModel
from registry.selectors import aliases as selectors
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.services import aliases as services

HISTORY_SHOWN = 30


@require_http_methods(["GET", "POST"])
@page
def aliases(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """The aliases; a POST sets one."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    rows = list(selectors.aliases_of(one))
    form = _form(request, one, rows, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            row, _made = services.alias_set(
                model=one,
                name=given["name"],
                version=version_selectors.version_by_number(one, given["version"]),
                is_protected=given["is_protected"],
                comment=given["comment"],
                seen=services.Seen(given["seen"], given["was_protected"]),
                actor=actor,
            )
        except RegistryError as error:
            add_errors(form, error)
        else:
            text = _("%(name)s points at v%(number)s.") % {"name": row.name, "number": row.version.number}
            before = next((old for old in rows if old.name == row.name), None)
            if before is None:
                messages.success(request, text)
            else:
                done(request, text, request.path, **_fields(before, seen=row))
            return redirect("web:model-aliases", one.project.slug, one.slug)
    context = {
        "rows": rows,
        "newest": selectors.latest_version(one),
        "form": form,
        "preview": _preview(one, form),
        "events": list(selectors.alias_events(actor, one)[:HISTORY_SHOWN]),
        **permissions(actor, one, "alias.move", "alias.move_protected"),
    }
    response = tab(request, one, "aliases", context)
    response.status_code = 422 if form.is_bound else 200
    return response


@require_POST
@page
def preview(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """What the filled-in form would mean, as a fragment. Stores nothing."""
    one = model_selectors.model_get(actor_of(request), project, model)
    form = _form(request, one, list(selectors.aliases_of(one)), request.POST)
    context = {"project": one.project, "model": one, "form": form, "preview": _preview(one, form)}
    return render(request, "web/fragments/alias_preview.html", context)


@require_POST
@page
def delete(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """Delete an alias that the form names."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    name = request.POST.get("name", "")
    row = selectors.alias_get(one, name)
    services.alias_delete(model=one, name=name, seen=services.Seen(row.version_id, row.is_protected), actor=actor)
    text = _("The alias %(name)s is deleted. No deployment changes.") % {"name": name}
    done(request, text, reverse("web:model-aliases", args=[project, model]), **_fields(row, seen=None))
    return redirect("web:model-aliases", project, model)


def _fields(wanted: Alias, *, seen: Alias | None) -> dict[str, str]:
    """Return what the form sends to set an alias as it was, if it still is as ``seen`` (None: not there)."""
    flags = {"is_protected": wanted.is_protected, "was_protected": seen is not None and seen.is_protected}
    return {
        "name": wanted.name,
        "version": str(wanted.version.number),
        "comment": _("Undone."),
        "seen": str(seen.version_id) if seen is not None else "",
        **{name: "on" for name, is_on in flags.items() if is_on},
    }


def _form(request: HttpRequest, model: RegisteredModel, rows: list[Alias], data: Any = None) -> AliasForm:
    versions = list(version_selectors.versions_deployable(model))
    name = request.GET.get("name", "champion")
    present = next((row for row in rows if row.name == name), None)
    initial: dict[str, Any] = {"name": name, "version": request.GET.get("version")}
    if present is not None:
        initial |= {
            "is_protected": present.is_protected,
            "seen": present.version_id,
            "was_protected": present.is_protected,
        }
    return AliasForm(data, versions=versions, initial=initial)


def _preview(model: RegisteredModel, form: AliasForm) -> dict[str, Any] | None:
    """Return what the form would do as it stands, with the same as curl; None while that cannot be said."""
    name = str(form["name"].value() or "")
    number = form["version"].value() or (form.fields["version"].choices or [(None, "")])[0][0]  # type: ignore[attr-defined]
    if alias_problem(name) or not str(number or "").isdecimal() or name == LATEST:
        return None
    try:
        after = version_selectors.version_by_number(model, int(str(number)[:9]))
    except RegistryError:
        return None
    body = {"version": after.number, "is_protected": bool(form["is_protected"].value())}
    path = f"projects/{model.project.slug}/models/{model.slug}/aliases/{name}/"
    move = selectors.alias_move(model, name, after)
    return {"move": move, "curl": equivalents.curl("PUT", path, body, is_new=move.before is None)}
