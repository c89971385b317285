"""What is kept how long. Audit events, seals and transitions are the record itself and stay for good."""

from __future__ import annotations

from datetime import datetime, timedelta

from registry.models import (
    ACTIVE_PHASES,
    ApprovalRequest,
    ApprovalState,
    Deployment,
    ModelVersion,
    Rollout,
    VersionState,
)

# A version that never became ready serves nobody: its reason has been read by then.
KEEP_REFUSED = timedelta(days=90)
KEEP_HISTORY = timedelta(days=400)
# However old: a roll-back looks for its target among these.
NEWEST_ROLLOUTS = 200


def refused_versions_purge(now: datetime) -> int:
    """Delete versions that were rejected or abandoned long ago, with their checks and files; return how many."""
    refused = ModelVersion.objects.filter(
        state__in=[VersionState.REJECTED, VersionState.ABANDONED], number=None, created_at__lt=now - KEEP_REFUSED
    )
    return refused.delete()[1].get(ModelVersion._meta.label, 0)


def rollouts_purge(now: datetime) -> int:
    """Delete finished rollouts of long ago, except the newest of each deployment; return how many."""
    old = Rollout.objects.exclude(phase__in=ACTIVE_PHASES).filter(created_at__lt=now - KEEP_HISTORY)
    deleted = 0
    for deployment in Deployment.objects.filter(pk__in=old.values("deployment")):
        newest = deployment.rollouts.order_by("-created_at").values("pk")[:NEWEST_ROLLOUTS]
        keep = [row["pk"] for row in newest]
        deleted += old.filter(deployment=deployment).exclude(pk__in=keep).delete()[0]
    return deleted


def approvals_purge(now: datetime) -> int:
    """Delete requests that were decided long ago and that no rollout names any more; return how many."""
    decided = ApprovalRequest.objects.exclude(state__in=[ApprovalState.OPEN, ApprovalState.APPROVED])
    old = decided.filter(created_at__lt=now - KEEP_HISTORY, rollouts=None)
    return old.delete()[1].get(ApprovalRequest._meta.label, 0)
