"""What every page is made with: the actor of the request, the frame around it, and errors as pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from console.middleware.request_context import facts_of
from registry.domain.actors import Actor
from registry.errors import NotFound, PermissionDenied, RegistryError
from registry.models import Project, User
from registry.selectors import accounts, approvals
from registry.selectors.permissions import can_each
from registry.selectors.standing import memberships_remembered

View = Callable[..., HttpResponse]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the navigation. ``key`` is the letter that follows ``g`` on the keyboard."""

    name: str
    label: str | Promise
    icon: str
    url: str
    key: str
    is_current: bool
    count: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around a page."""

    projects: tuple[Project, ...]
    project: Project | None
    navigation: tuple[Entry, ...]


def user_of(request: HttpRequest) -> User:
    """Return the signed-in user."""
    return cast(User, request.user)


def actor_of(request: HttpRequest) -> Actor:
    """Return who acts in this request."""
    facts = facts_of(request)
    return Actor.person(user_of(request), ip=facts.ip, request_id=facts.request_id)


def is_fragment(request: HttpRequest) -> bool:
    """Say whether htmx asks for a part of a page."""
    return bool(request.headers.get("HX-Request")) and not request.headers.get("HX-Boosted")


def page(view: View) -> View:
    """Require a signed-in user and show the domain's errors as pages: not found, not allowed, not acceptable."""
    inside = login_required(view)

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if is_fragment(request) and not request.user.is_authenticated:
            # The session ended under an open page: go to the sign-in page instead of swapping it into a panel.
            return HttpResponse(status=401, headers={"HX-Redirect": reverse("account_login")})
        try:
            with memberships_remembered() if request.method == "GET" else nullcontext():
                return inside(request, *args, **kwargs)
        except NotFound as error:
            return error_page(request, 404, error)
        except PermissionDenied as error:
            return error_page(request, 403, error)
        except RegistryError as error:
            return error_page(request, 409, error)

    return wrapped


def error_page(request: HttpRequest, status: int, error: RegistryError) -> HttpResponse:
    """Return the error as a whole page, or as a notice where a part of a page was asked for."""
    if is_fragment(request):
        return render(request, "web/fragments/error.html", {"error": error}, status=status)
    return render_page(request, "web/error.html", {"error": error, "status_code": status}, status=status)


def render_page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    project: Project | None = None,
    current: str = "",
    topics: Iterable[str] = (),
    status: int = 200,
) -> HttpResponse:
    """Return a page in its frame. ``topics`` are the live topics that its fragments follow."""
    frame = frame_of(request, project, current)
    return render(request, template, {**context, "frame": frame, "topics": ",".join(topics)}, status=status)


def frame_of(request: HttpRequest, project: Project | None, current: str) -> Frame:
    """Return projects and navigation; the project used last is remembered in the session."""
    actor = actor_of(request)
    projects = accounts.projects_listed(actor)
    if project is None:
        remembered = request.session.get("project")
        project = next((one for one in projects if one.slug == remembered), projects[0] if projects else None)
    elif request.session.get("project") != project.slug:
        request.session["project"] = project.slug
    return Frame(projects, project, tuple(_navigation(actor, project, current)))


def _navigation(actor: Actor, project: Project | None, current: str) -> Iterable[Entry]:
    waiting = approvals.inbox_size(actor)

    def entry(name: str, label: str | Promise, icon: str, url: str, key: str, count: int = 0) -> Entry:
        return Entry(name, label, icon, url, key, name == current, count)

    yield entry("home", _("Home"), "house", reverse("web:home"), "h")
    if project is not None:
        yield entry("models", _("Models"), "boxes", reverse("web:models", args=[project.slug]), "m")
        yield entry("deployments", _("Deployments"), "rocket", reverse("web:deployments", args=[project.slug]), "d")
    yield entry("approvals", _("Approvals"), "inbox", reverse("web:approvals"), "a", waiting)
    yield entry("fleet", _("Fleet"), "server", reverse("web:fleet"), "f")
    yield entry("operations", _("Operations"), "activity", reverse("web:operations"), "o")
    yield entry("audit", _("Audit"), "scroll-text", reverse("web:audit"), "u")
    yield entry("settings", _("Settings"), "settings", reverse("web:members"), "s")


def add_errors(form: forms.BaseForm, error: RegistryError) -> None:
    """Show a domain error at the fields it names, the rest at the head of the form. What was typed stays."""
    placed = False
    for problem in error.errors:
        field = problem.get("field", "")
        form.add_error(field if field in form.fields else None, problem["message"])
        placed = True
    if not placed:
        form.add_error(None, error.message)


def permissions(actor: Actor, obj: Any, *names: str) -> dict[str, Any]:
    """Return ``{"deployment_change": Allowed | Denied, ...}`` for templates, which show the reason of a denial."""
    return {name.replace(".", "_"): said for name, said in can_each(actor, names, obj).items()}
