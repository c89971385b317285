"""Settings: service accounts, for site administrators."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.identity.reauthentication import sensitive
from console.web import equivalents
from console.web.forms import service_accounts as forms
from console.web.forms.editing import seen_text
from console.web.forms.tokens import TokenForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from console.web.undo import done
from registry.errors import Conflict, NotFound, RegistryError
from registry.models import User
from registry.selectors import accounts as account_selectors
from registry.selectors import service_accounts as selectors
from registry.services import service_accounts as services
from registry.services import tokens as token_services
from registry.services.accounts import membership_set
from registry.services.locking import held


@require_http_methods(["GET", "POST"])
@page
def account_list(request: HttpRequest) -> HttpResponse:
    """Every service account; make one."""
    actor = actor_of(request)
    form = forms.ServiceAccountForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.service_account_create(actor=actor, **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Service account %(name)s is made.") % {"name": made.username})
            return redirect("web:service-account", made.username)
    context = {
        "section": "service-accounts",
        "form": form,
        "accounts": list(selectors.service_accounts(actor)),
        "curl": equivalents.curl("POST", "service-accounts/", {"username": "ci-sentiment", "site_role": "none"}),
        **permissions(actor, None, "site.users"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/settings/service_accounts.html", context, current="settings", status=status)


@require_http_methods(["GET", "POST"])
@page
@sensitive("key")
def account(request: HttpRequest, username: str) -> HttpResponse:
    """One service account: where it works, its keys, what rules give it to CI jobs; give it a role or a key."""
    actor = actor_of(request)
    row = selectors.service_account_get(actor, username)
    posted = request.POST.get("form") if request.method == "POST" else None
    projects = account_selectors.projects_of(actor)
    role = forms.AccountRoleForm(request.POST if posted == "role" else None, projects=projects)
    key = TokenForm(request.POST if posted == "key" else None, projects=projects)
    secret = ""
    if posted == "role" and role.is_valid():
        try:
            membership_set(user=row, actor=actor, **role.cleaned_data)
        except RegistryError as error:
            add_errors(role, error)
        else:
            messages.success(request, _("The role is given."))
            return redirect("web:service-account", username)
    if posted == "key" and key.is_valid():
        try:
            _token, secret = token_services.token_create(owner=row, actor=actor, **key.arguments())
        except RegistryError as error:
            add_errors(key, error)
        else:
            key = TokenForm(projects=projects)
    context = {
        "section": "service-accounts",
        "account": row,
        "reach": selectors.reach_of(row),
        "seen": seen_text(_facts(row)),
        "role": role,
        "key": key,
        "secret": secret,
        "curl": equivalents.curl("POST", f"service-accounts/{row.username}/disable"),
    }
    status = 422 if role.is_bound or key.is_bound else 200
    response = render_page(request, "web/settings/service_account.html", context, current="settings", status=status)
    if secret:
        response["Cache-Control"] = "no-store"
    return response


@require_POST
@page
def account_act(request: HttpRequest, username: str) -> HttpResponse:
    """Disable it, let it work again, or delete it."""
    actor = actor_of(request)
    row = selectors.service_account_get(actor, username)
    with held(row) as now:
        if request.POST.get("seen") != seen_text(_facts(now)):
            raise Conflict(_("Somebody changed the account meanwhile. Look at it again."))
        match request.POST.get("act", ""):
            case "disable" | "enable" as wanted:
                services.service_account_set_active(account=now, is_active=wanted == "enable", actor=actor)
                now.refresh_from_db()
                said = _("It works again.") if wanted == "enable" else _("It is disabled.")
                opposite = "disable" if wanted == "enable" else "enable"
                done(request, said, request.path, act=opposite, seen=seen_text(_facts(now)))
            case "delete":
                services.service_account_delete(account=now, actor=actor)
                messages.success(request, _("Service account %(name)s is deleted.") % {"name": username})
                return redirect("web:service-accounts")
            case _:
                raise NotFound(_("There is no such action."))
    return redirect("web:service-account", username)


def _facts(account: User) -> dict[str, object]:
    return {"site_role": account.site_role, "is_active": account.is_active}
