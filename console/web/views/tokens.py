"""Settings: API keys, one's own and those of service accounts."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.identity.reauthentication import sensitive
from console.web import equivalents
from console.web.forms import tokens as forms
from console.web.page import actor_of, add_errors, page, render_page, user_of
from registry.errors import NotFound, RegistryError
from registry.models import ApiToken
from registry.selectors import accounts as selectors
from registry.services import tokens as services
from registry.services.locking import held


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def token_list(request: HttpRequest) -> HttpResponse:
    """Keys that the viewer manages. A new key's text is shown once, in the answer to its making, and never again."""
    actor = actor_of(request)
    form = forms.TokenForm(request.POST or None, projects=selectors.projects_of(actor))
    secret = ""
    if request.method == "POST" and form.is_valid():
        try:
            _token, secret = services.token_create(owner=user_of(request), actor=actor, **form.arguments())
        except RegistryError as error:
            add_errors(form, error)
        else:
            form = forms.TokenForm(projects=selectors.projects_of(actor))
    context = {
        "section": "tokens",
        "form": form,
        "secret": secret,
        "tokens": list(selectors.tokens_visible_to(actor)),
        "curl": equivalents.curl(
            "POST",
            "api-keys/",
            {"name": "CI of sentiment", "scopes": ["write"], "project": None, "allowed_networks": []},
        ),
        "use_curl": equivalents.curl("GET", "me/"),
    }
    status = 422 if form.is_bound else 200
    response = render_page(request, "web/settings/tokens.html", context, current="settings", status=status)
    if secret:
        response["Cache-Control"] = "no-store"
    return response


@require_http_methods(["GET", "POST"])
@page
def token(request: HttpRequest, token_id: uuid.UUID) -> HttpResponse:
    """One key: change it, renew its secret, revoke it."""
    actor = actor_of(request)
    row = selectors.token_get(actor, token_id)
    form = forms.TokenChangeForm(request.POST or None, token=row)
    if request.method == "POST" and form.is_valid():
        try:
            with held(row) as now:
                is_saved = form.is_current(forms.token_facts(now))
                if is_saved:
                    services.token_update(token=now, actor=actor, **form.changes())
        except RegistryError as error:
            add_errors(form, error)
        else:
            if is_saved:
                messages.success(request, _("Saved."))
                return redirect("web:token", row.pk)
    return _token_page(request, row, form)


@require_POST
@page
@sensitive()
def token_rotate(request: HttpRequest, token_id: uuid.UUID) -> HttpResponse:
    """Give a key a new secret, and show it this once."""
    actor = actor_of(request)
    row = selectors.token_get(actor, token_id)
    form = forms.TokenRotateForm(request.POST)
    if not form.is_valid():
        raise NotFound(_("There is no such time."))
    changed, secret = services.token_rotate(token=row, overlap=form.time(), actor=actor)
    return _token_page(request, changed, forms.TokenChangeForm(token=changed), secret)


@require_POST
@page
def token_revoke(request: HttpRequest, token_id: uuid.UUID) -> HttpResponse:
    """Revoke a key."""
    actor = actor_of(request)
    row = selectors.token_get(actor, token_id)
    services.token_revoke(token=row, actor=actor)
    messages.success(request, _("The key is revoked: whoever uses it is refused from now on."))
    return redirect("web:tokens")


def _token_page(request: HttpRequest, row: ApiToken, form: forms.TokenChangeForm, secret: str = "") -> HttpResponse:
    context = {
        "section": "tokens",
        "token": row,
        "form": form,
        "rotate": forms.TokenRotateForm(),
        "secret": secret,
        "curl": equivalents.curl("POST", f"api-keys/{row.pk}/rotate", {"overlap_hours": 24}),
        "command": f"flotilla keys rotate flo_{row.public_id} --overlap-hours 24",
    }
    status = 422 if form.is_bound else 200
    response = render_page(request, "web/settings/token.html", context, current="settings", status=status)
    if secret:
        response["Cache-Control"] = "no-store"
    return response
