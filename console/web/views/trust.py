"""Settings: which CI jobs may act in the project without a secret, and the site's issuers."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from console.identity.reauthentication import sensitive
from console.web import equivalents
from console.web.forms import trust as forms
from console.web.page import actor_of, add_errors, frame_of, page, permissions, render_page
from registry.errors import NotFound, RegistryError
from registry.models import Project, TrustRule
from registry.selectors import trust as selectors
from registry.selectors.accounts import project_get
from registry.services import issuer_keys
from registry.services import trust as services
from registry.services.locking import held


def _project(request: HttpRequest) -> Project:
    project = frame_of(request, None, "settings").project
    if project is None:
        raise NotFound(_("You are in no project yet. Ask an administrator."))
    return project


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def rule_list(request: HttpRequest) -> HttpResponse:
    """Rules of the current project; make one. Beside them what to write into the workflow."""
    actor = actor_of(request)
    project = _project(request)
    form = forms.TrustRuleForm(
        request.POST or None,
        issuers=selectors.issuers(actor).filter(is_enabled=True),
        accounts=selectors.trustable_accounts(project),
    )
    if request.method == "POST" and form.is_valid():
        try:
            rule = services.trust_rule_create(project=project, actor=actor, **form.arguments())
        except RegistryError as error:
            add_errors(form, error)
        else:
            messages.success(request, _("Jobs of that repository may act here now."))
            return redirect("web:trust-rule", project.slug, rule.pk)
    context = {
        "section": "trust",
        "project": project,
        "form": form,
        "rules": list(selectors.trust_rules(project)),
        "issuers": list(selectors.issuers(actor)),
        "has_accounts": selectors.trustable_accounts(project).exists(),
        "curl": equivalents.curl("GET", f"projects/{project.slug}/trust-rules/"),
        **permissions(actor, project, "project.trust"),
        **permissions(actor, None, "site.issuers"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/settings/trust.html", context, project=project, current="settings", status=status)


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def rule(request: HttpRequest, project: str, rule_id: uuid.UUID) -> HttpResponse:
    """One rule: change it, copy the lines for the workflow, delete it."""
    actor = actor_of(request)
    place = project_get(actor, project)
    row = selectors.trust_rule_get(place, rule_id)
    accounts = selectors.trustable_accounts(place)
    form = forms.TrustRuleChangeForm(request.POST or None, rule=row, accounts=accounts)
    if request.method == "POST" and form.is_valid():
        try:
            with held(row) as now:
                is_saved = form.is_current(forms.rule_facts(now))
                if is_saved:
                    services.trust_rule_update(rule=now, actor=actor, **form.arguments())
        except RegistryError as error:
            add_errors(form, error)
        else:
            if is_saved:
                messages.success(request, _("Saved. Tokens that the rule has given have ended."))
                return redirect("web:trust-rule", place.slug, row.pk)
    context = {
        "section": "trust",
        "rule": row,
        "form": form,
        "workflow": _workflow(row),
        "curl": equivalents.curl("GET", f"projects/{place.slug}/trust-rules/{row.pk}/"),
        **permissions(actor, place, "project.trust"),
    }
    status = 422 if form.is_bound else 200
    return render_page(
        request, "web/settings/trust_rule.html", context, project=place, current="settings", status=status
    )


@require_POST
@page
def rule_delete(request: HttpRequest, project: str, rule_id: uuid.UUID) -> HttpResponse:
    """Delete a rule."""
    actor = actor_of(request)
    row = selectors.trust_rule_get(project_get(actor, project), rule_id)
    services.trust_rule_delete(rule=row, actor=actor)
    messages.success(request, _("The rule is deleted, and tokens that it has given have ended."))
    return redirect("web:trust")


@require_http_methods(["GET", "POST"])
@page
@sensitive()
def issuer_list(request: HttpRequest) -> HttpResponse:
    """Issuers whose tokens count here; put one on the list."""
    actor = actor_of(request)
    form = forms.IssuerForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made = services.issuer_create(actor=actor, **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            issuer_keys.issuer_read_keys(issuer=made, actor=actor)
            if made.keys_problem:
                messages.warning(request, _("It is on the list, but: %(problem)s") % {"problem": made.keys_problem})
            else:
                messages.success(request, _("It is on the list, and its keys are read."))
            return redirect("web:issuers")
    context = {
        "section": "trust",
        "form": form,
        "issuers": list(selectors.issuers(actor)),
        "audience": selectors.audience(),
        "curl": equivalents.curl("POST", "issuers/", {"slug": "github", "kind": "github"}),
        **permissions(actor, None, "site.issuers"),
    }
    status = 422 if form.is_bound else 200
    return render_page(request, "web/settings/issuers.html", context, current="settings", status=status)


@require_POST
@page
def issuer_act(request: HttpRequest, slug: str) -> HttpResponse:
    """Read an issuer's keys, disable or enable it, or take it from the list."""
    actor = actor_of(request)
    issuer = selectors.issuer_get(actor, slug)
    match request.POST.get("act", ""):
        case "read":
            issuer_keys.issuer_read_keys(issuer=issuer, actor=actor)
            if issuer.keys_problem:
                messages.warning(request, issuer.keys_problem)
            else:
                messages.success(request, _("Its keys are read."))
        case "disable" | "enable" as wanted:
            services.issuer_update(issuer=issuer, is_enabled=wanted == "enable", actor=actor)
            messages.success(request, _("Its tokens count again.") if wanted == "enable" else _("It is disabled."))
        case "delete":
            services.issuer_delete(issuer=issuer, actor=actor)
            messages.success(request, _("It is taken from the list."))
        case _:
            raise NotFound(_("There is no such action."))
    return redirect("web:issuers")


def _workflow(rule: TrustRule) -> str:
    """Return the lines of a workflow that make a job of this rule; they name it where others may fit as well."""
    others = selectors.trust_rules(rule.project).filter(issuer=rule.issuer, repository_id=rule.repository_id)
    named = rule.name if others.exclude(pk=rule.pk).exists() else ""
    if rule.issuer.kind == "github":
        return equivalents.ci_github(rule.project.slug, named, rule.environment)
    return equivalents.ci_gitlab(rule.project.slug, named, rule.environment, selectors.audience())
