"""Putting a spec in force, and the one pass that brings a deployment forward."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import signals, telemetry
from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec, unit_name
from registry.domain.reconcile import (
    FinishOperation,
    MoveRollout,
    PushDesired,
    ReportOperation,
    SetStatus,
    decide,
)
from registry.errors import InvalidTransition, PermissionDenied
from registry.models import (
    ACTIVE_PHASES,
    ApprovalRequest,
    ConfigRevision,
    Deployment,
    ModelVersion,
    Operation,
    OperationQueue,
    OperationState,
    ReviewDecision,
    Rollout,
    RolloutPhase,
    Route,
)
from registry.selectors.deployments import deployment_facts
from registry.selectors.fleet import nodes_of
from registry.services import audit
from registry.services.code import code_permit
from registry.services.nodes import node_generation_raise
from registry.services.operations import operation_create, reconciled_finish, reconciled_report
from registry.services.transition import move
from registry.services.webhook_events import event_publish
from serving_node.contract.model_config import parse_json

_RECONCILE = "reconcile"


@dataclass(frozen=True, slots=True)
class Progress:
    """Result of one reconcile pass: nodes to send their desired state to, and whether a row changed."""

    push: tuple[uuid.UUID, ...]
    changed: bool


def spec_apply(
    *,
    deployment: Deployment,
    spec: DeploymentSpec,
    kind: str,
    approval: ApprovalRequest | None = None,
    actor: Actor,
) -> tuple[Rollout, Operation]:
    """Put a resolved spec in force in the caller's transaction, which holds the deployment's lock.

    An active rollout is superseded; if the new one fails, the state before both comes back.
    """
    created_by = approval.requester_id if approval is not None else actor.user_id
    if created_by is None:
        raise PermissionDenied(_("A rollout needs somebody who asked for it."))
    before = deployment.spec
    permitted_by = _approved_by(approval) if approval is not None else None
    spec_from = _supersede_active(deployment, actor)
    for route in spec.routes:
        version, config = ModelVersion.objects.get(pk=route.version_id), ConfigRevision.objects.get(pk=route.config_id)
        code_permit(
            version=version,
            config=parse_json(config.body),
            permitted_by=permitted_by,
            is_approved=approval is not None,
            actor=actor,
        )
    _put_in_force(deployment, spec.to_json())
    operation = operation_create(
        kind="deploy",
        queue=OperationQueue.CONTROL,
        subject_type="deployment",
        subject_id=deployment.id,
        project=deployment.project,
        params={"kind": kind},
        actor=actor,
    )
    rollout = Rollout.objects.create(
        deployment=deployment,
        kind=kind,
        spec_from=spec_from,
        spec_to=deployment.spec,
        generation=deployment.generation,
        approval=approval,
        operation=operation,
        created_by_id=created_by,
    )
    move(rollout, "phase", RolloutPhase.PROGRESSING, cause=f"{kind} by {actor.name}", actor=actor)
    audit.record(
        actor=actor,
        action=f"deployment.{kind}",
        obj=deployment,
        before={"spec": before},
        after={"spec": deployment.spec, "generation": deployment.generation},
    )
    _publish(deployment)
    return rollout, operation


def rollout_move(*, rollout: Rollout, to: str, cause: str, actor: Actor | None = None) -> None:
    """Move a rollout's phase. ``aborting`` puts the spec before it back in force on all nodes.

    Raises:
        InvalidTransition: the phase does not allow it.
    """
    actor = actor or Actor.system(_RECONCILE)
    with transaction.atomic():
        deployment = Deployment.objects.select_for_update().get(pk=rollout.deployment_id)
        final = to in (RolloutPhase.SUCCEEDED, RolloutPhase.ROLLED_BACK, RolloutPhase.FAILED, RolloutPhase.SUPERSEDED)
        columns = {"phase_reason": cause} if to != RolloutPhase.SUPERSEDED else {}
        move(
            rollout,
            "phase",
            to,
            cause=cause,
            actor=actor,
            **columns,
            **({"finished_at": timezone.now()} if final else {}),
        )
        if to == RolloutPhase.ABORTING:
            audit.record(actor=actor, action="rollout.abort", obj=rollout, after={"reason": cause})
            if rollout.spec_from.get("routes"):
                _put_in_force(deployment, rollout.spec_from)
        event_publish(
            f"rollout.{to}",
            project_id=deployment.project_id,
            actor_name=actor.name,
            obj=rollout,
            details={"reason": cause, "deployment": str(deployment.pk)},
        )
        _publish(deployment)


def rollout_progress(*, deployment_id: uuid.UUID, now: datetime) -> Progress:
    """Do one level-triggered pass: gather facts, decide, move the rollout, finish its operation, write the status.

    Safe to call at any time, any number of times. An unknown id does nothing.
    """
    facts = deployment_facts(deployment_id, now)
    if facts is None:
        return Progress((), False)
    push: list[uuid.UUID] = []
    changed = False
    for action in decide(facts, now):
        match action:
            case PushDesired(node_id):
                push.append(node_id)
            case MoveRollout(rollout_id, to, cause):
                if not _try_move(rollout_id, to, cause):
                    # Somebody was faster: everything decided on those facts is stale.
                    return Progress(tuple(push), True)
                changed = True
            case ReportOperation(operation_id, percent, message):
                changed |= reconciled_report(operation_id, percent=percent, message=message)
            case FinishOperation(operation_id, message, code):
                state = OperationState.FAILED if code else OperationState.SUCCEEDED
                reconciled_finish(operation_id, state=state, message=message, code=code)
                changed = True
            case SetStatus():
                changed |= _set_status(deployment_id, action)
    return Progress(tuple(push), changed)


def _try_move(rollout_id: uuid.UUID, to: str, cause: str) -> bool:
    rollout = Rollout.objects.filter(pk=rollout_id).first()
    if rollout is None:
        return False
    try:
        rollout_move(rollout=rollout, to=to, cause=cause)
    except InvalidTransition:
        return False
    return True


def _set_status(deployment_id: uuid.UUID, status: SetStatus) -> bool:
    columns = {
        "sync": status.sync,
        "sync_reason": status.sync_reason,
        "health": status.health,
        "health_reason": status.health_reason,
        "observed_generation": status.observed_generation,
    }
    rows = Deployment.objects.filter(pk=deployment_id, observed_generation__lte=status.observed_generation)
    if not rows.exclude(**columns).update(**columns):
        return False
    deployment = Deployment.objects.get(pk=deployment_id)
    _publish(deployment)
    return True


def _supersede_active(deployment: Deployment, actor: Actor) -> dict[str, object]:
    """End the active rollout, if any, and return the state to go back to when the new one fails."""
    spec_from: dict[str, object] = deployment.spec
    for active in deployment.rollouts.filter(phase__in=ACTIVE_PHASES):
        # What the active one was to replace is the last state known to be good, unless it is going back there already.
        if active.phase != RolloutPhase.ABORTING and active.spec_from.get("routes"):
            spec_from = active.spec_from
        _supersede(active, actor)
    return spec_from


def _supersede(active: Rollout, actor: Actor) -> None:
    reason = _("Replaced by a newer change.")
    move(
        active,
        "phase",
        RolloutPhase.SUPERSEDED,
        cause=reason,
        actor=actor,
        phase_reason=reason,
        finished_at=timezone.now(),
    )
    if active.operation_id is not None:
        reconciled_finish(active.operation_id, state=OperationState.CANCELLED, message=reason, code="superseded")


def _put_in_force(deployment: Deployment, document: dict[str, object]) -> None:
    """Write spec and routes, and raise the generation of the deployment and of every node that takes part."""
    spec = DeploymentSpec.from_json(document)
    Deployment.objects.filter(pk=deployment.pk).update(spec=document, generation=F("generation") + 1)
    deployment.refresh_from_db(fields=["spec", "generation"])
    _write_routes(deployment, spec)
    node_generation_raise(nodes_of(deployment.fleet).values_list("id", flat=True))
    signals.send_deployment_touched(deployment.id)


def _write_routes(deployment: Deployment, spec: DeploymentSpec) -> None:
    digests = dict(
        ConfigRevision.objects.filter(pk__in=[route.config_id for route in spec.routes]).values_list("id", "digest")
    )
    kept = []
    for route in spec.routes:
        unit = unit_name(deployment.served_name, route.version, digests[uuid.UUID(route.config_id)])
        Route.objects.update_or_create(
            deployment=deployment,
            unit=unit,
            defaults={
                "version_id": route.version_id,
                "config_id": route.config_id,
                "role": route.role,
                "weight": route.weight,
                "sample_percent": route.sample_percent,
            },
        )
        kept.append(unit)
    deployment.routes.exclude(unit__in=kept).delete()


def _approved_by(approval: ApprovalRequest) -> uuid.UUID:
    """Return who approved last, or bypassed the rules, else who asked where nobody had to approve."""
    if approval.bypassed_by_id is not None:
        return approval.bypassed_by_id
    given = approval.reviews.filter(decision=ReviewDecision.APPROVE).order_by("-created_at").first()
    return given.reviewer_id if given is not None else approval.requester_id


def _publish(deployment: Deployment) -> None:
    project = deployment.project_id
    telemetry.publish_on_commit(f"deployment:{deployment.id}", project=project)
    telemetry.publish_on_commit(f"model:{deployment.model_id}", project=project)
