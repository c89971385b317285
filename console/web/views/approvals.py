"""Approvals: the inbox, the review in one scroll, and the decision."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.web import equivalents
from console.web.forms.approvals import ReviewForm
from console.web.page import actor_of, add_errors, page, permissions, render_page
from registry.errors import RegistryError
from registry.models.deployments import ApprovalState
from registry.selectors import accounts
from registry.selectors import approvals as selectors
from registry.selectors.permissions import can
from registry.selectors.protection import WAITING, timing_of
from registry.services import approvals as services
from registry.services.approval_contents import approval_contents

SHOWN = 100


@require_GET
@page
def inbox(request: HttpRequest) -> HttpResponse:
    """What waits for the viewer, and every request of the viewer's projects by state in the address."""
    actor = actor_of(request)
    state = request.GET.get("state", "")
    rows = selectors.approvals_visible_to(actor)
    if state in ApprovalState.values:
        rows = rows.filter(state=state)
    waiting, shown = list(selectors.inbox(actor)[:SHOWN]), list(rows[:SHOWN])
    context = {"waiting": waiting, "rows": shown, "state": state, "states": ApprovalState.choices}
    # A new request is told to its project, a decision to the request.
    topics = [f"project:{one.pk}" for one in accounts.projects_of(actor)[:20]]
    topics += [f"approval:{pk}" for pk in dict.fromkeys(one.pk for one in [*waiting, *shown])][:20]
    return render_page(request, "web/approvals/inbox.html", context, current="approvals", topics=topics)


def _page(request: HttpRequest, approval_id: uuid.UUID, form: ReviewForm, status: int = 200) -> HttpResponse:
    actor = actor_of(request)
    one = selectors.approval_get(actor, approval_id)
    detail = selectors.approval_detail(actor, one)
    waits = one.state in WAITING
    # What the form offers: whoever may not decide, or comes when it is over, comments.
    body = {"decision": "comment", "comment": _("What I think of it.")}
    if one.state == ApprovalState.OPEN and detail.may_review:
        body = {"decision": "approve", "comment": "", "plan_digest": one.plan_digest}
    context = {
        "approval": one,
        "detail": detail,
        "project": one.project,
        "form": form,
        "contents": approval_contents(detail, timezone.now()),
        "curl": equivalents.curl("POST", f"approvals/{one.pk}/reviews/", body),
        "waits": waits,
        "timing": timing_of(one.environment, timezone.now()) if one.state == ApprovalState.OPEN else None,
        "may_withdraw": waits and (one.requester_id == actor.user_id or bool(can(actor, "approval.withdraw", one))),
        "required_checks": [check["kind"] for check in one.environment.required_checks],
        **permissions(actor, one, "approval.comment"),
    }
    return render_page(
        request,
        "web/approvals/detail.html",
        context,
        project=one.project,
        current="approvals",
        topics=[f"approval:{one.pk}"],
        status=status,
    )


@require_GET
@page
def approval(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Everything a reviewer needs, on one page."""
    return _page(request, approval_id, ReviewForm())


@require_POST
@page
def review(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Approve, ask for changes, or reject what was read."""
    actor = actor_of(request)
    one = selectors.approval_get(actor, approval_id)
    form = ReviewForm(request.POST)
    if form.is_valid():
        try:
            services.approval_review(approval=one, actor=actor, **form.cleaned_data)
        except RegistryError as error:
            add_errors(form, error)
        else:
            one.refresh_from_db()
            done = {
                "approve": _("Approved."),
                "reject": _("Rejected."),
                "request_changes": _("Changes requested."),
                "comment": _("The comment is added."),
            }
            messages.success(request, done[form.cleaned_data["decision"]])
            if one.state == ApprovalState.APPLIED:
                return redirect("web:deployment", one.project.slug, one.deployment_id)
            return redirect("web:approval", approval_id)
    return _page(request, approval_id, form, status=422)


@require_POST
@page
def bypass(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Start the change past the rules of its environment."""
    actor = actor_of(request)
    one = selectors.approval_get(actor, approval_id)
    reason, plan_digest = request.POST.get("reason", ""), request.POST.get("plan_digest", "")
    services.approval_bypass(approval=one, reason=reason, plan_digest=plan_digest, actor=actor)
    messages.warning(request, _("The rules were bypassed; the rollout has started."))
    return redirect("web:deployment", one.project.slug, one.deployment_id)


@require_POST
@page
def withdraw(request: HttpRequest, approval_id: uuid.UUID) -> HttpResponse:
    """Take one's request back."""
    actor = actor_of(request)
    services.approval_withdraw(approval=selectors.approval_get(actor, approval_id), actor=actor)
    messages.success(request, _("The request is withdrawn."))
    return redirect("web:approval", approval_id)
