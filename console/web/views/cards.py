"""A model's card: reading it, its history, editing it with a preview."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.web import equivalents
from console.web.forms.models import CardForm
from console.web.page import actor_of, add_errors, page
from console.web.views.models import tab
from registry.domain.cards import MAX_CARD_BYTES
from registry.domain.text_diff import text_diff
from registry.errors import RegistryError, StaleWrite
from registry.models import RegisteredModel
from registry.selectors import cards as selectors
from registry.selectors import models as model_selectors
from registry.selectors import versions as version_selectors
from registry.services import cards as services
from registry.services.previews import file_text

REVISIONS_SHOWN = 50


@require_GET
@page
def card(request: HttpRequest, project: str, model: str, number: int | None = None) -> HttpResponse:
    """The card as it is, or one revision of it with what it changed."""
    one = model_selectors.model_get(actor_of(request), project, model)
    latest = selectors.card_latest(one)
    shown = latest if number is None else selectors.card_get(one, number)
    revisions = list(selectors.cards_of(one)[:REVISIONS_SHOWN])
    context: dict[str, Any] = {
        "card": shown,
        "latest": latest,
        "revisions": revisions,
        "proposal": selectors.card_proposal(one, latest),
        "curl": equivalents.curl("GET", f"projects/{project}/models/{model}/card/"),
    }
    if shown is not None and number is not None:
        before = selectors.card_get(one, number - 1).text if number > 1 else ""
        context |= {"is_revision": True, "lines": text_diff(before, shown.text)}
    return tab(request, one, "card", context)


@require_http_methods(["GET", "POST"])
@page
def edit(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """The editor; ``?version=3`` begins with the README of that version, ``?revision=2`` with an older card."""
    actor = actor_of(request)
    one = model_selectors.model_get(actor, project, model)
    form = CardForm(request.POST) if request.method == "POST" else CardForm(initial=_initial(request, one))
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        version = version_selectors.version_by_number(one, given["version"]) if given["version"] else None
        try:
            services.card_save(
                model=one,
                text=given["text"].replace("\r\n", "\n"),
                comment=given["comment"],
                version=version,
                seen=given["seen"],
                actor=actor,
            )
        except StaleWrite as error:
            form = _again(form, one, error)
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("The card is saved."))
            return redirect("web:model-card", project, model)
    path = f"projects/{project}/models/{model}/card/"
    latest = selectors.card_latest(one)
    context = {
        "form": form,
        "text": str(form["text"].value() or ""),
        "latest": latest,
        "curl": equivalents.curl("PUT", path, {"text": "# …", "comment": ""}, is_new=latest is None),
    }
    response = tab(request, one, "card_edit", context)
    response.status_code = 422 if form.is_bound else 200
    return response


@require_POST
@page
def preview(request: HttpRequest, project: str, model: str) -> HttpResponse:
    """The text of the editor as it would be shown. Stores nothing."""
    model_selectors.model_get(actor_of(request), project, model)
    form = CardForm(request.POST)
    form.full_clean()
    text = form.cleaned_data.get("text", "")
    return render(request, "web/fragments/card_preview.html", {"text": text, "form": form})


def _initial(request: HttpRequest, model: RegisteredModel) -> dict[str, Any]:
    latest = selectors.card_latest(model)
    initial = {"seen": latest.number if latest else 0, "text": latest.text if latest else ""}
    wanted, older = request.GET.get("version", ""), request.GET.get("revision", "")
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 9:
        proposal = selectors.card_proposed_by(model, int(wanted))
        if proposal is not None:
            comment = _("README of version %(number)s") % {"number": wanted}
            initial |= {"text": file_text(proposal.file, MAX_CARD_BYTES), "version": int(wanted), "comment": comment}
    elif older.isascii() and older.isdigit() and len(older) < 9:
        card = selectors.card_get(model, int(older))
        initial |= {"text": card.text, "comment": _("Back to revision %(number)s") % {"number": older}}
    return initial


def _again(form: CardForm, model: RegisteredModel, error: StaleWrite) -> CardForm:
    """Return the form as it was typed, now beside the newest revision: saving once more replaces that."""
    latest = selectors.card_latest(model)
    number = latest.number if latest else 0
    again = CardForm({**form.data.dict(), "seen": number})  # type: ignore[attr-defined]
    again.full_clean()
    told = _("Revision %(number)s is in the history; saving replaces it.") % {"number": number}
    again.add_error(None, f"{error.message} {told}")
    return again
