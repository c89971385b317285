"""Settings: members, projects."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from console.identity.reauthentication import sensitive
from console.web import equivalents
from console.web.forms import settings as forms
from console.web.page import actor_of, add_errors, frame_of, page, permissions, render_page
from console.web.undo import done
from registry.errors import NotFound, RegistryError
from registry.models import CodeFormats, Project, Role, User
from registry.selectors import accounts as selectors
from registry.services import accounts as services
from registry.services.code import project_code_formats
from registry.services.locking import held


def _project(request: HttpRequest) -> Project:
    project = frame_of(request, None, "settings").project
    if project is None:
        raise NotFound(_("You are in no project yet. Ask an administrator."))
    return project


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@page
@sensitive("create", keeps_input=False)
def members(request: HttpRequest) -> HttpResponse:
    """Who is in the current project; add an account or make a new one."""
    actor = actor_of(request)
    project = _project(request)
    posted = request.POST.get("form") if request.method == "POST" else None
    add = forms.MemberForm(request.POST if posted == "add" else None, users=selectors.users_addable(project))
    create = forms.NewMemberForm(request.POST if posted == "create" else None)
    if posted == "role":
        return _change_role(request, project)
    if posted == "add" and add.is_valid():
        try:
            services.membership_set(project=project, actor=actor, **add.cleaned_data)
        except RegistryError as error:
            add_errors(add, error)
        else:
            messages.success(request, _("%(name)s is a member now.") % {"name": add.cleaned_data["user"].username})
            return redirect("web:members")
    if posted == "create" and create.is_valid() and _create_member(request, project, create):
        return redirect("web:members")
    context = {
        "section": "members",
        "project": project,
        "members": list(selectors.members_of(project)),
        "roles": Role.choices,
        "add": add,
        "create": create,
        "account_curl": equivalents.curl("POST", "users/", {"username": "dana", "password": "a long first password"}),
        "curl": equivalents.curl("POST", f"projects/{project.slug}/members/", {"username": "dana", "role": "approver"}),
        **permissions(actor, project, "project.members"),
        **permissions(actor, None, "site.users"),
    }
    status = 422 if posted else 200
    return render_page(
        request, "web/settings/members.html", context, project=project, current="settings", status=status
    )


def _code_curl(project: Project) -> str:
    body = {"code_formats": project.code_formats, "pickles_known_only": project.pickles_known_only}
    return equivalents.curl("PATCH", f"projects/{project.slug}/policies/", body)


def _create_member(request: HttpRequest, project: Project, form: forms.NewMemberForm) -> bool:
    """Make the account and its membership together; False leaves the errors in the form."""
    actor = actor_of(request)
    values = form.cleaned_data
    try:
        with transaction.atomic():
            user = services.user_create(
                username=values["username"],
                password=None if values["is_service"] else values["password"],
                site_role=values["site_role"],
                is_service=values["is_service"],
                actor=actor,
            )
            services.membership_set(project=project, user=user, role=values["role"], actor=actor)
    except RegistryError as error:
        add_errors(form, error)
        return False
    messages.success(request, _("Account %(name)s is made.") % {"name": user.username})
    return True


def _change_role(request: HttpRequest, project: Project) -> HttpResponse:
    user = get_object_or_404(User, username=request.POST.get("user", ""))
    with held(project):  # whoever changes members locks their project first
        if _is_current_member(request, project, user):
            wanted = request.POST.get("role", "")
            services.membership_set(project=project, user=user, role=wanted, actor=actor_of(request))
            text = _("The role of %(name)s is changed.") % {"name": user.username}
            back = {"user": user.username, "role": request.POST["seen"], "seen": wanted}
            done(request, text, request.path, form="role", **back)
    return redirect("web:members")


def _is_current_member(request: HttpRequest, project: Project, user: User) -> bool:
    """Say whether the member's role is still what the page showed; else tell both. Call it under the project's lock."""
    now = selectors.members_of(project).filter(user=user).first()
    if now is not None and now.role == request.POST.get("seen"):
        return True
    facts = {
        "name": user.username,
        "now": now.get_role_display() if now else _("no member"),
        "wanted": dict(Role.choices).get(request.POST.get("role", ""), _("to be removed")),
    }
    messages.warning(
        request,
        _("Nothing was changed: somebody made %(name)s “%(now)s” meanwhile. You wanted “%(wanted)s”; choose again.")
        % facts,
    )
    return False


@require_POST
@page
def member_remove(request: HttpRequest) -> HttpResponse:
    """Take somebody out of the current project."""
    user, project = get_object_or_404(User, username=request.POST.get("user", "")), _project(request)
    with held(project):
        if _is_current_member(request, project, user):
            services.membership_remove(project=project, user=user, actor=actor_of(request))
            text = _("%(name)s is no longer a member.") % {"name": user.username}
            done(request, text, reverse("web:members"), form="add", user=user.username, role=request.POST["seen"])
    return redirect("web:members")


@require_http_methods(["GET", "POST"])
@page
def projects(request: HttpRequest) -> HttpResponse:
    """The viewer's projects; make one more, or say whether versions of one may bring code."""
    actor = actor_of(request)
    if request.method == "POST" and "code_formats" in request.POST:
        project = selectors.project_get(actor, request.POST.get("project", ""))
        with held(project) as now:
            known_only = "on" if now.pickles_known_only else ""
            if now.code_formats == request.POST.get("seen") and known_only == request.POST.get("seen_known_only", ""):
                project_code_formats(
                    project=now,
                    code_formats=request.POST["code_formats"],
                    pickles_known_only=bool(request.POST.get("pickles_known_only")),
                    actor=actor,
                )
                messages.success(request, _("Saved. What is deployed stays as it is."))
            else:
                told = _("Nothing was changed: somebody set it to “%(now)s” meanwhile; choose again.")
                messages.warning(request, told % {"now": now.get_code_formats_display()})
        return redirect("web:projects")
    form = forms.ProjectForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.project_create(actor=actor, **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Project %(name)s is made.") % {"name": made.name})
            return redirect("web:models", made.slug)
    administered = set(selectors.projects_administered(actor))
    mine = list(selectors.projects_of(actor))
    context = {
        "section": "projects",
        "form": form,
        "projects": [(one, one in administered) for one in mine],
        "code_formats": CodeFormats.choices,
        "curl": equivalents.curl("POST", "projects/", {"slug": "vision", "name": "Vision"}),
        "code_curl": next((_code_curl(one) for one in mine if one in administered), ""),
        **permissions(actor, None, "site.projects"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/settings/projects.html", context, current="settings", status=status)
