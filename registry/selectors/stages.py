"""The stages of changes, from what is kept and seen."""

from __future__ import annotations

import uuid
from datetime import datetime

from registry.domain.health import deployment_health, ready_percent
from registry.domain.protection import Verdict
from registry.domain.reconcile import gives_up_at
from registry.domain.stages import RequestFacts, RolloutProgress, Stage, stages
from registry.models import ACTIVE_PHASES, ApprovalRequest, Rollout, Transition
from registry.selectors.approvals import approval_verdict
from registry.selectors.deployments import deployment_facts
from registry.selectors.protection import WAITING, windows_of


def request_stages(approval: ApprovalRequest, now: datetime) -> tuple[Stage, ...]:
    """Return the stages of a change that is asked for and has not begun."""
    return stages(_request(approval, now), None)


def rollout_stages(rollout: Rollout, now: datetime) -> tuple[Stage, ...]:
    """Return the stages of a change that has begun, with those of its request when it had one."""
    request = _request(rollout.approval, now) if rollout.approval is not None else None
    return stages(request, _progress(rollout, now))


def rollout_moves(rollout: Rollout) -> list[Transition]:
    """Return the moves of a rollout's phase, oldest first."""
    return _moves("rollout", rollout.pk)


def request_moves(approval: ApprovalRequest) -> list[Transition]:
    """Return the moves of a request's state, oldest first."""
    return _moves("approvalrequest", approval.pk)


def _moves(object_type: str, object_id: uuid.UUID) -> list[Transition]:
    moves = Transition.objects.filter(object_type=object_type, object_id=object_id)
    return list(moves.order_by("created_at", "id"))


def _request(approval: ApprovalRequest, now: datetime) -> RequestFacts:
    return RequestFacts(
        state=approval.state,
        asked_at=approval.created_at,
        expires_at=approval.expires_at,
        verdict=approval_verdict(approval, now) if approval.state in WAITING else Verdict(),
        has_clock=_has_clock(approval),
        approved_at=approval.approved_at,
        applied_at=approval.applied_at,
        due_at=approval.due_at,
        bypassed_by=approval.bypassed_by.username if approval.bypassed_by is not None else "",
    )


def _has_clock(approval: ApprovalRequest) -> bool:
    """Say whether a request waits for its time, or did when it was applied: the rules may be others by now."""
    if approval.approved_at is not None and approval.applied_at is not None:
        return approval.applied_at > approval.approved_at
    return bool(approval.environment.wait_minutes or windows_of(approval.environment))


def _progress(rollout: Rollout, now: datetime) -> RolloutProgress:
    reached = {move.to_state: move.created_at for move in rollout_moves(rollout)}
    facts = deployment_facts(rollout.deployment_id, now) if rollout.phase in ACTIVE_PHASES else None
    active = facts.rollout if facts is not None and facts.rollout is not None else None
    return RolloutProgress(
        phase=rollout.phase,
        reason=rollout.phase_reason,
        began_at=rollout.created_at,
        can_revert=bool(rollout.spec_from.get("routes")),
        verifying_at=reached.get("verifying"),
        aborting_at=reached.get("aborting"),
        finished_at=rollout.finished_at,
        waits_for=deployment_health(facts).reason if facts is not None else "",
        percent=ready_percent(facts) if facts is not None else 0,
        gives_up_at=gives_up_at(facts, active) if facts is not None and active is not None else None,
    )
