"""Letting a command line act for oneself: type its code, read what it asks for, confirm or deny."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from console.identity.attempts import count_code
from console.identity.reauthentication import sensitive
from console.web.forms.connect import CodeForm
from console.web.page import actor_of, add_errors, page, render_page, user_of
from registry.errors import RegistryError
from registry.selectors.login_requests import login_by_code
from registry.services import login_requests as services


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def connect(request: HttpRequest) -> HttpResponse:
    """Show what waits under ``?code=``; POST with ``decision`` grant or deny decides."""
    typed = request.POST.get("code") or request.GET.get("code") or ""
    form = CodeForm({"code": typed}) if typed else CodeForm()
    found = None
    if typed and form.is_valid():
        count_code(user_of(request).pk, _("Too many codes were typed; wait five minutes, then try again."))
        try:
            found = login_by_code(form.cleaned_data["code"])
            decision = request.POST.get("decision", "")
            if decision in {"grant", "deny"}:
                services.login_decide(request=found, grant=decision == "grant", actor=actor_of(request))
                said = _("%(client)s may act for you now.") if decision == "grant" else _("%(client)s was denied.")
                messages.success(request, said % {"client": found.client})
                return redirect("web:tokens")
        except RegistryError as error:
            add_errors(form, error)
    status = 422 if form.is_bound and form.errors else 200
    context = {"section": "tokens", "form": form, "asked": found}
    response = render_page(request, "web/settings/connect.html", context, current="settings", status=status)
    response["Cache-Control"] = "no-store"
    return response
