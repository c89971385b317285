"""What people may do to a rollout that is under way: hold it, let it go on, stop it."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import signals
from registry.domain.actors import Actor
from registry.errors import Conflict
from registry.models import Deployment, Rollout, RolloutPhase
from registry.services import audit
from registry.services.permissions import require
from registry.services.rollouts import rollout_move

_MAX_REASON = 500


def rollout_pause(*, rollout: Rollout, reason: str = "", actor: Actor) -> Rollout:
    """Hold a rollout: until it is resumed it neither succeeds nor goes back by itself.

    Nodes go on loading what they were told to load, and take the routes when that is ready.

    Raises:
        InvalidTransition: it is not progressing.
    """
    require(actor, "deployment.rollback", rollout.deployment)
    cause = _sentence(_("Paused by %(who)s.") % {"who": actor.name}, reason)
    return _steer(rollout, RolloutPhase.PAUSED, "rollout.pause", cause, actor)


def rollout_resume(*, rollout: Rollout, reason: str = "", actor: Actor) -> Rollout:
    """Let a paused rollout go on; its deadline counts from now.

    Raises:
        InvalidTransition: it is not paused.
    """
    require(actor, "deployment.rollback", rollout.deployment)
    cause = _sentence(_("Resumed by %(who)s.") % {"who": actor.name}, reason)
    with transaction.atomic():
        moved = _steer(rollout, RolloutPhase.PROGRESSING, "rollout.resume", cause, actor)
        Rollout.objects.filter(pk=rollout.pk).update(resumed_at=timezone.now())
    moved.refresh_from_db()
    return moved


def rollout_abort(*, rollout: Rollout, reason: str = "", actor: Actor) -> Rollout:
    """Stop a rollout and put back in force what was there before it. That needs no approval.

    Raises:
        Conflict: there was nothing before it.
        InvalidTransition: it has ended, or goes back already.
    """
    require(actor, "deployment.rollback", rollout.deployment)
    if not rollout.spec_from.get("routes"):
        raise Conflict(_("Nothing was deployed before this rollout; deploy something else, or no routes at all."))
    cause = _sentence(_("Aborted by %(who)s.") % {"who": actor.name}, reason)
    # It is audited by the move, which the system also makes by itself.
    return _steer(rollout, RolloutPhase.ABORTING, "", cause, actor)


def _steer(rollout: Rollout, to: str, action: str, cause: str, actor: Actor) -> Rollout:
    with transaction.atomic():
        # Whoever moves a rollout locks its deployment first.
        Deployment.objects.select_for_update().get(pk=rollout.deployment_id)
        rollout_move(rollout=rollout, to=to, cause=cause, actor=actor)
        if action:
            audit.record(actor=actor, action=action, obj=rollout, after={"reason": cause})
        signals.send_deployment_touched(rollout.deployment_id)
    return rollout


def _sentence(who: str, reason: str) -> str:
    reason = " ".join(reason.split())[:_MAX_REASON]
    return f"{who} {reason}".strip()
