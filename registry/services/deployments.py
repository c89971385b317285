"""Changes of what is served where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db import transaction
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.plans import TAKES_TRAFFIC, DeploymentSpec, inside_range
from registry.errors import Conflict, InvalidTransition, PermissionDenied, StaleWrite, ValidationFailed
from registry.models import (
    ApprovalRequest,
    ApprovalState,
    Deployment,
    Fleet,
    ModelState,
    Operation,
    RegisteredModel,
    Rollout,
    RolloutPhase,
)
from registry.selectors import clock
from registry.selectors.aliases import alias_numbers
from registry.selectors.deployments import rollback_spec
from registry.selectors.protection import WAITING
from registry.services import audit, quotas
from registry.services.approval_progress import approval_advance, approval_publish, approvals_void_of
from registry.services.permissions import require
from registry.services.plans import Plan, deployment_plan
from registry.services.rollouts import Progress, rollout_move, rollout_progress, spec_apply

__all__ = [
    "ChangeOutcome",
    "Plan",
    "Progress",
    "deployment_change",
    "deployment_plan",
    "deployment_rollback",
    "deployment_traffic",
    "rollout_move",
    "rollout_progress",
    "rollout_retry",
]


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What came of a wish: a request that waits, or a rollout with its operation; neither: nothing to change.

    A request waits for approvals, checks, a timer or a window, as the environment's rules say.
    """

    deployment: Deployment
    plan_digest: str
    approval: ApprovalRequest | None = None
    rollout: Rollout | None = None
    operation: Operation | None = None


def deployment_change(
    *, model: RegisteredModel, fleet: Fleet, spec: DeploymentSpec, comment: str = "", actor: Actor
) -> ChangeOutcome:
    """Ask for a spec: apply it now where the environment lets it, else open a request.

    An open request of the same deployment is voided by a newer one. Raises what ``deployment_plan`` raises, and
    Conflict for an archived model, QuotaExceeded when the project may not use the nodes of one more fleet.
    """
    require(actor, "deployment.change", model)
    # Refuse bad input before a row is made for it.
    plan = deployment_plan(model=model, fleet=fleet, spec=spec, actor=actor)
    with transaction.atomic():
        deployment, made = Deployment.objects.get_or_create(
            model=model,
            fleet=fleet,
            defaults={"project_id": model.project_id, "served_name": plan.served_name},
        )
        if made:
            audit.record(actor=actor, action="deployment.create", obj=deployment, after={"fleet": fleet.slug})
        return _change(deployment, spec, kind="deploy", comment=comment, actor=actor)


def deployment_traffic(
    *, deployment: Deployment, weights: Mapping[str | int, int], generation: int | None = None, actor: Actor
) -> ChangeOutcome:
    """Move weights (by unit id, version number or alias, percent). Inside the applied range this needs no approval.

    Raises:
        ValidationFailed: an unknown version or unit, or weights that do not sum to 100.
    """
    require(actor, "project.view", deployment)
    with transaction.atomic():
        locked = _locked(deployment, generation)
        units = {route.unit: route for route in locked.routes.select_related("version")}
        spec = DeploymentSpec.from_json(locked.spec)
        numbers = alias_numbers(locked.model, [str(name) for name in weights if str(name) not in units])
        by_key: dict[tuple[str, str], int] = {}
        for name, weight in weights.items():
            text = str(name)
            keys = [
                (str(route.version_id), str(route.config_id))
                for unit, route in units.items()
                if unit == text or route.version.number == numbers.get(text) or text == str(route.version.number)
            ]
            if len(keys) != 1 or isinstance(weight, bool) or not isinstance(weight, int):
                message = _("“%(name)s” is not one version of this deployment.") % {"name": text}
                raise ValidationFailed(message, errors=[{"field": f"weights.{text}", "message": message}])
            by_key[keys[0]] = weight
        routes = tuple(
            replace(route, weight=by_key.get(route.key, route.weight)) if route.role in TAKES_TRAFFIC else route
            for route in spec.routes
        )
        return _change(locked, replace(spec, routes=routes), kind="traffic", comment="", actor=actor)


def deployment_rollback(*, deployment: Deployment, generation: int | None = None, actor: Actor) -> ChangeOutcome:
    """Go back to the newest earlier state in which one version takes all the traffic.

    It was applied in this environment before, so it needs no new approval. ``generation`` is the one that the caller
    looked at: of two people who roll it back at once, only one does.

    Raises:
        StaleWrite: the deployment has another generation by now.
        Conflict: there is nothing to go back to.
        ValidationFailed: a version of that state is archived or quarantined by now.
    """
    require(actor, "deployment.rollback", deployment)
    with transaction.atomic():
        locked = _locked(deployment, generation)
        target = rollback_spec(locked)
        if target is None:
            raise Conflict(_("There is nothing to roll back to."))
        return _change(locked, target, kind="rollback", comment="", actor=actor)


def rollout_retry(*, rollout: Rollout, actor: Actor) -> ChangeOutcome:
    """Ask once more for what a failed rollout wanted; where approvals are needed, it needs a new one.

    Raises:
        InvalidTransition: it did not fail, or it is not the newest of its deployment.
        ValidationFailed: a version that it wanted is archived or quarantined by now.
    """
    require(actor, "deployment.change", rollout.deployment)
    with transaction.atomic():
        deployment = _locked(rollout.deployment, None)
        newest = deployment.rollouts.order_by("-created_at").first()
        if newest is None or newest.pk != rollout.pk:
            raise InvalidTransition(_("There is a newer change of this deployment; only the newest is tried again."))
        if newest.phase not in (RolloutPhase.ROLLED_BACK, RolloutPhase.FAILED):
            raise InvalidTransition(_("Only a rollout that failed or went back is tried again."))
        wanted = DeploymentSpec.from_json(newest.spec_to)
        return _change(deployment, wanted, kind="deploy", comment=_("Tried again."), actor=actor)


def _locked(deployment: Deployment, generation: int | None) -> Deployment:
    """Return the deployment under its lock, if it still has the generation that the caller looked at."""
    locked = Deployment.objects.select_for_update().get(pk=deployment.pk)
    if generation is not None and locked.generation != generation:
        raise StaleWrite(_("The deployment was changed since you looked at it; look again."))
    return locked


def _change(deployment: Deployment, spec: DeploymentSpec, *, kind: str, comment: str, actor: Actor) -> ChangeOutcome:
    """Apply or request a spec inside the caller's transaction, on the facts that hold under the deployment's lock."""
    deployment = (
        Deployment.objects.select_for_update(of=("self",))
        .select_related("model__project", "fleet__environment", "project")
        .get(pk=deployment.pk)
    )
    plan = deployment_plan(
        model=deployment.model, fleet=deployment.fleet, spec=spec, actor=actor, applied_before=kind == "rollback"
    )
    if plan.is_noop:
        require(actor, "deployment.change", deployment)
        return ChangeOutcome(deployment, plan.plan_digest)
    if plan.spec.routes:
        _require_active(deployment.model)
        quotas.require_nodes(deployment.project_id, deployment.fleet)
    if plan.needs_approval or plan.is_held:
        require(actor, "deployment.change", deployment)
        approval = _request_approval(deployment, plan, comment, actor)
        return ChangeOutcome(deployment, plan.plan_digest, approval=approval)
    applied = DeploymentSpec.from_json(deployment.spec)
    if kind != "rollback" and inside_range(applied, plan.spec):
        kind = "traffic"
        require(actor, "deployment.traffic", deployment)
    else:
        reason = _("The deployment was changed while this waited, so the request is void; ask again.")
        approvals_void_of(deployment, reason, actor, states=(ApprovalState.APPROVED,))
    rollout, operation = spec_apply(deployment=deployment, spec=plan.spec, kind=kind, actor=actor)
    return ChangeOutcome(deployment, plan.plan_digest, rollout=rollout, operation=operation)


def _require_active(model: RegisteredModel) -> None:
    """Hold the model, so that it is not archived meanwhile."""
    held = RegisteredModel.objects.select_for_update(no_key=True).get(pk=model.pk)
    if held.state != ModelState.ACTIVE:
        raise Conflict(_("The model “%(model)s” is archived; restore it first.") % {"model": model.slug})


def _request_approval(deployment: Deployment, plan: Plan, comment: str, actor: Actor) -> ApprovalRequest:
    if actor.user_id is None:
        raise PermissionDenied(_("An approval needs a requester."))
    for older in deployment.approvals.filter(state__in=WAITING):
        if older.plan_digest == plan.plan_digest and older.spec == plan.spec.to_json():
            return older
    approvals_void_of(deployment, _("Replaced by a newer request."), actor)
    hours = deployment.fleet.environment.approval_valid_hours
    now = clock.database_now()
    approval = ApprovalRequest.objects.create(
        project=deployment.project,
        deployment=deployment,
        environment=deployment.fleet.environment,
        spec=plan.spec.to_json(),
        plan=plan.plan,
        plan_digest=plan.plan_digest,
        comment=comment,
        requester_id=actor.user_id,
        requester_token_id=actor.token_id,
        expires_at=now + timedelta(hours=hours),
    )
    audit.record(
        actor=actor,
        action="approval.request",
        obj=approval,
        after={"plan_digest": plan.plan_digest, "spec": approval.spec, "comment": comment},
    )
    approval_publish(approval)
    if not plan.needs_approval:
        approval_advance(approval, now, actor)
    return approval
