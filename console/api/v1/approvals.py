"""Approval of plans."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.pagination import Listing, refusal
from console.api.schema import paged
from console.api.v1.serializers.approvals import (
    ApprovalDetailSerializer,
    ApprovalSerializer,
    BypassWrite,
    PlannedConfigSerializer,
    PlannedVersionSerializer,
    ReviewSerializer,
    ReviewWrite,
)
from console.api.views import ApiView
from registry.errors import Conflict
from registry.models import ApprovalRequest
from registry.selectors import approvals as selectors
from registry.selectors.permissions import Denied
from registry.services import approvals as services
from registry.services.approval_contents import approval_contents
from registry.services.locking import held


class ApprovalList(ApiView):
    """Requests of the caller's projects; ``?inbox=1`` only those that wait for somebody like the caller."""

    listing = Listing(("state", "project__slug", "environment__slug"), also=("inbox",))

    @extend_schema(
        summary="List approval requests",
        parameters=[OpenApiParameter("inbox", enum=["1", "true"], description="Only what the caller may decide.")],
        responses=paged(ApprovalSerializer),
    )
    def get(self, request: Request) -> Response:
        rows = selectors.approvals_visible_to(self.actor)
        inbox = request.query_params.get("inbox")
        if inbox is not None and inbox not in {"1", "true"}:
            raise refusal("inbox", _("“inbox” is 1 or left out."))
        if inbox:
            rows = selectors.inbox(self.actor)
        return self.page(rows, ApprovalSerializer)


class ApprovalView(ApiView):
    """Base of what is below one request."""

    @property
    def approval(self) -> ApprovalRequest:
        """Return the request of the address."""
        return selectors.approval_get(self.actor, self.kwargs["approval"])

    def detail(self, approval: ApprovalRequest | None = None) -> dict[str, Any]:
        """Return the request as it is now, with reviews and whether the caller may decide."""
        return _document(selectors.approval_detail(self.actor, approval or self.approval))

    def answer(self, request: Request) -> Response:
        """Return the request with how the environment's rules stand and what it would do.

        Both change by the clock and with the fleet, so no tag is of them.
        """
        found = selectors.approval_detail(self.actor, self.approval)
        document = _document(found)
        rules = [finding.to_json() for finding in found.verdict.findings]
        contents = _contents(found)
        return tagged(request, {**document, "protection": rules, **contents}, version=document)


class ApprovalItem(ApprovalView):
    """One request."""

    @extend_schema(summary="Read an approval request", responses=ApprovalDetailSerializer)
    def get(self, request: Request, approval: uuid.UUID) -> Response:
        return self.answer(request)


class ReviewList(ApprovalView):
    """Decisions about a request."""

    checks_match = True
    listing = Listing(("decision",))

    @extend_schema(summary="List reviews", responses=paged(ReviewSerializer))
    def get(self, request: Request, approval: uuid.UUID) -> Response:
        return self.page(self.approval.reviews.select_related("reviewer"), ReviewSerializer)

    @extend_schema(summary="Review a plan", request=ReviewWrite, responses={201: ApprovalDetailSerializer})
    def post(self, request: Request, approval: uuid.UUID) -> Response:
        seen, given, refusal = self.approval, self.read(ReviewWrite), None
        # Whoever decides locks the deployment before the request.
        with held(seen.deployment), matched(request, seen, self.detail) as row:
            try:
                services.approval_review(approval=row, **given, actor=self.actor)
            except Conflict as error:
                refusal = error  # the request is void now, and stays so
        if refusal is not None:
            raise refusal
        answer = self.answer(request)
        answer.status_code = 201
        return answer


class ApprovalBypass(ApprovalView):
    """Start a change past the rules."""

    @extend_schema(
        summary="Bypass the rules of an environment",
        description="For those whom the environment lets. The reason is kept, told to webhooks and shown.",
        request=BypassWrite,
        responses=ApprovalDetailSerializer,
    )
    def post(self, request: Request, approval: uuid.UUID) -> Response:
        seen, given, refusal = self.approval, self.read(BypassWrite), None
        with held(seen.deployment), matched(request, seen, self.detail) as row:
            try:
                services.approval_bypass(approval=row, **given, actor=self.actor)
            except Conflict as error:
                refusal = error  # the request is void now, and stays so
        if refusal is not None:
            raise refusal
        return self.answer(request)


class ApprovalWithdraw(ApprovalView):
    """Take a request back."""

    checks_match = True

    @extend_schema(summary="Withdraw a request", request=None, responses=ApprovalDetailSerializer)
    def post(self, request: Request, approval: uuid.UUID) -> Response:
        with matched(request, self.approval, self.detail) as row:
            services.approval_withdraw(approval=row, actor=self.actor)
        return self.answer(request)


def _document(found: selectors.ApprovalDetail) -> dict[str, Any]:
    return {
        **ApprovalSerializer(found.approval).data,
        "reviews": ReviewSerializer(found.reviews, many=True).data,
        "required": found.required,
        "approvals_given": found.approvals_given,
        "changes_requested": found.changes_requested,
        "may_review": bool(found.may_review),
        "may_review_reason": found.may_review.reason if isinstance(found.may_review, Denied) else "",
        "may_bypass": bool(found.may_bypass),
        "may_bypass_reason": found.may_bypass.reason if isinstance(found.may_bypass, Denied) else "",
        "still_asked": [user.username for user in found.still_asked],
    }


def _contents(found: selectors.ApprovalDetail) -> dict[str, Any]:
    contents = approval_contents(found, timezone.now())
    target = {
        "selector": found.approval.deployment.fleet.selector,
        "nodes": [node.name for node in contents.nodes],
        "requests_per_second": contents.request_rate,
    }
    return {
        "versions": PlannedVersionSerializer(contents.versions, many=True).data,
        "configs": PlannedConfigSerializer(contents.configs, many=True).data,
        "routes_before": contents.routes_before,
        "target": target,
    }
