"""The stages of a change: approval, its time, loading, verifying, and the way back; what each waits for."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.v1.serializers.stages import StagesSerializer
from console.api.views import ApiView
from registry.domain.stages import Stage
from registry.models import Transition
from registry.selectors import approvals as approval_selectors
from registry.selectors import deployments as deployment_selectors
from registry.selectors import stages as selectors


class RolloutStages(ApiView):
    """Stages of a change that has begun."""

    @extend_schema(
        summary="Read the stages of a rollout",
        description="With those of its request, when it had one, and every move of its phase.",
        responses=StagesSerializer,
    )
    def get(self, request: Request, rollout: uuid.UUID) -> Response:
        found = deployment_selectors.rollout_get(self.actor, rollout)
        return _answer(selectors.rollout_stages(found, timezone.now()), selectors.rollout_moves(found))


class ApprovalStages(ApiView):
    """Stages of a change that is asked for."""

    @extend_schema(
        summary="Read the stages of a change that is asked for",
        description="Once it has begun its rollout has them all.",
        responses=StagesSerializer,
    )
    def get(self, request: Request, approval: uuid.UUID) -> Response:
        found = approval_selectors.approval_get(self.actor, approval)
        return _answer(selectors.request_stages(found, timezone.now()), selectors.request_moves(found))


def _answer(stages: tuple[Stage, ...], moves: list[Transition]) -> Response:
    document: dict[str, Any] = {"stages": stages, "moves": moves}
    return Response(StagesSerializer(document).data)
