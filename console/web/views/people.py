"""Settings: everybody's accounts, for administrators of the site."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.identity.adapters import password_link
from console.identity.reauthentication import sensitive
from console.web import equivalents
from console.web.forms.people import PersonForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from console.web.undo import done
from registry.errors import NotFound, RegistryError
from registry.models import User
from registry.selectors import people as selectors
from registry.selectors.sessions import session_get, sessions_of
from registry.selectors.sso import identities_of
from registry.services import people as services
from registry.services.permissions import require
from registry.services.sessions import session_end, sessions_end
from registry.services.sign_ins import second_factors_reset

PAGE_SIZE = 50


@require_GET
@page
def people(request: HttpRequest) -> HttpResponse:
    """Accounts; search and filter are in the address."""
    actor = actor_of(request)
    search, state = request.GET.get("q", "").strip(), request.GET.get("state", "")
    shown = Paginator(selectors.people_matching(actor, search, state), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "section": "people",
        "page": shown,
        "search": search,
        "state": state,
        "curl": equivalents.curl("GET", "users/"),
        **permissions(actor, None, "site.users"),
    }
    return render_page(request, "web/settings/people.html", context, current="settings")


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def person(request: HttpRequest, username: str) -> HttpResponse:
    """One account: what it is, where it is signed in, and what blocking it would stop."""
    user = _found(request, username)
    form = PersonForm(request.POST or None, user=user)
    if request.method == "POST" and form.is_valid():
        try:
            changed = services.user_update(user=user, actor=actor_of(request), **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Saved."))
            return redirect("web:person", changed.username)
    return _person_page(request, _found(request, username), form)


def _found(request: HttpRequest, username: str) -> User:
    actor = actor_of(request)
    require(actor, "site.users")
    return selectors.person_get(actor, username)


def _person_page(request: HttpRequest, user: User, form: PersonForm, link: str = "") -> HttpResponse:
    context: dict[str, Any] = {
        "section": "people",
        "person": user,
        "form": form,
        "link": link,
        "impact": selectors.user_impact(user),
        "sessions": list(sessions_of(user)),
        "identities": identities_of(user),
        "memberships": list(user.memberships.select_related("project", "mapped_by").order_by("project__slug")),
        "factors": list(Authenticator.objects.filter(user=user).order_by("created_at")),
        "is_self": user.pk == request.user.pk,
        "curl": equivalents.curl("PATCH", f"users/{user.username}/", {"is_active": not user.is_active}),
    }
    status = 422 if form.is_bound and form.errors else 200
    response = render_page(request, "web/settings/person.html", context, current="settings", status=status)
    if link:
        response["Cache-Control"] = "no-store"
    return response


@require_POST
@page
@sensitive()
def person_act(request: HttpRequest, username: str) -> HttpResponse:
    """Block or let in, make a link for a new password, take second factors away, end sessions."""
    user, actor = _found(request, username), actor_of(request)
    match request.POST.get("act", ""):
        case "block" | "let-in" as wanted:
            services.user_set_active(user=user, is_active=wanted == "let-in", actor=actor)
            said = _("%(name)s may sign in again.") if wanted == "let-in" else _("%(name)s is blocked.")
            done(request, said % {"name": username}, request.path, act="block" if wanted == "let-in" else "let-in")
        case "password-link":
            link = password_link(services.password_link_create(user=user, actor=actor))
            return _person_page(request, user, PersonForm(user=user), link)
        case "reset-factors":
            second_factors_reset(user=user, actor=actor)
            messages.success(request, _("The second factors are taken away, and the sessions ended."))
        case "end-sessions":
            ended = sessions_end(user=user, actor=actor)
            messages.success(request, _("%(count)d sessions are ended.") % {"count": ended})
        case "end-session":
            number = request.POST.get("session", "")
            session = session_get(actor, user, int(number) if number.isdigit() else 0)
            session_end(session=session, actor=actor)
            messages.success(request, _("The session is ended."))
        case _:
            raise NotFound(_("There is no such action."))
    return redirect("web:person", username)
