"""One change of a deployment while it is under way, and after."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.etag import matched, tagged
from console.api.v1.deployments import CHANGE, change_answer
from console.api.v1.serializers.deployments import RolloutReason, RolloutSerializer
from console.api.views import ApiView
from registry.models import Rollout
from registry.selectors import deployments as selectors
from registry.services import deployments as services
from registry.services import rollout_steering as steering
from registry.services.locking import held


class RolloutView(ApiView):
    """Base of what is about one rollout."""

    @property
    def rollout(self) -> Rollout:
        """Return the rollout of the address."""
        return selectors.rollout_get(self.actor, self.kwargs["rollout"])

    def steer(self, request: Request, verb: Callable[..., Rollout]) -> Response:
        """Do the verb to the rollout as the caller saw it; return the rollout after."""
        seen, given = self.rollout, self.read(RolloutReason)
        # Whoever moves a rollout locks its deployment first.
        with held(seen.deployment), matched(request, seen, _document) as row:
            verb(rollout=row, **given, actor=self.actor)
        return tagged(request, _document(row))


class RolloutItem(RolloutView):
    """One rollout."""

    @extend_schema(summary="Read a rollout", responses=RolloutSerializer)
    def get(self, request: Request, rollout: uuid.UUID) -> Response:
        return tagged(request, _document(self.rollout))


class RolloutPause(RolloutView):
    """Hold it."""

    checks_match = True

    @extend_schema(
        summary="Pause a rollout",
        description="It neither succeeds nor goes back by itself until it is resumed; nodes go on loading.",
        request=RolloutReason,
        responses=RolloutSerializer,
    )
    def post(self, request: Request, rollout: uuid.UUID) -> Response:
        return self.steer(request, steering.rollout_pause)


class RolloutResume(RolloutView):
    """Let it go on."""

    checks_match = True

    @extend_schema(
        summary="Resume a rollout",
        description="Its deadline counts from now.",
        request=RolloutReason,
        responses=RolloutSerializer,
    )
    def post(self, request: Request, rollout: uuid.UUID) -> Response:
        return self.steer(request, steering.rollout_resume)


class RolloutAbort(RolloutView):
    """Stop it, and go back."""

    checks_match = True

    @extend_schema(
        summary="Abort a rollout",
        description="What was there before comes back, without an approval. 409: there was nothing before.",
        request=RolloutReason,
        responses=RolloutSerializer,
    )
    def post(self, request: Request, rollout: uuid.UUID) -> Response:
        return self.steer(request, steering.rollout_abort)


class RolloutRetry(RolloutView):
    """Ask for the same again."""

    checks_match = True

    @extend_schema(
        summary="Retry a rollout",
        description="Of the newest rollout of a deployment, when it failed or went back: a new one with the same spec.",
        request=None,
        responses=CHANGE,
    )
    def post(self, request: Request, rollout: uuid.UUID) -> Response:
        seen = self.rollout
        with held(seen.deployment), matched(request, seen, _document) as row:
            outcome = services.rollout_retry(rollout=row, actor=self.actor)
        return change_answer(outcome)


def _document(rollout: Rollout) -> dict[str, Any]:
    return dict(RolloutSerializer(rollout).data)
