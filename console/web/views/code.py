"""The code in a version: what it is, what runs of it, and the permission for it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST

from console.web import equivalents
from console.web.forms.code import WithdrawForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.errors import RegistryError
from registry.selectors import code as selectors
from registry.selectors import models as model_selectors
from registry.selectors.accounts import project_get
from registry.selectors.versions import version_by_number
from registry.services import code as services


@require_http_methods(["GET", "POST"])
@page
def version_code(request: HttpRequest, project: str, model: str, number: int) -> HttpResponse:
    """What withdrawing the permission would do, and the forms to withdraw it or to give it again."""
    actor = actor_of(request)
    parent = model_selectors.model_get(actor, project, model)
    one = version_by_number(parent, number)
    form = WithdrawForm(request.POST if request.POST.get("act") == "withdraw" else None)
    if request.method == "POST":
        try:
            if request.POST.get("act") == "permit":
                services.code_permit_again(version=one, actor=actor)
                messages.success(request, _("Nodes may run its code again; where it is deployed they load it."))
                return redirect("web:version", project, model, number)
            if form.is_valid():
                services.code_withdraw(version=one, reason=form.cleaned_data["reason"], actor=actor)
                messages.success(request, _("The permission is withdrawn; nodes unload what runs of it."))
                return redirect("web:version", project, model, number)
        except RegistryError as error:
            add_errors(form, error)
    path = f"projects/{project}/models/{model}/versions/{number}/code/withdraw"
    context = {
        "project": parent.project,
        "model": parent,
        "version": one,
        "effects": selectors.code_effects([one], timezone.now()),
        "form": form,
        "curl": equivalents.curl("POST", path, {"reason": "CVE-2026-1234"}) if one.code_permitted_at else "",
        **permissions(actor, one, "version.quarantine", "project.policy"),
    }
    return render_page(
        request,
        "web/versions/code.html",
        context,
        project=parent.project,
        current="models",
        topics=[f"version:{one.pk}"],
        status=422 if request.method == "POST" else 200,
    )


@require_POST
@page
def code_withdraw_all(request: HttpRequest, project: str) -> HttpResponse:
    """Take the permission for the code of every version of a project back."""
    actor = actor_of(request)
    room = project_get(actor, project)
    count = services.code_withdraw_all(project=room, reason=request.POST.get("reason", ""), actor=actor)
    text = ngettext(
        "The permission of %(count)d version is withdrawn.",
        "%(count)d permissions are withdrawn.",
        count,
    )
    messages.success(request, text % {"count": count})
    return redirect("web:policies", room.slug)
