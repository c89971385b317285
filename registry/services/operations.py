"""Long work: rows with a lease. The queue only carries ids; a lost message is found by its expired lease."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet, TextField, Value
from django.db.models.functions import Coalesce, Concat, Right
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import signals, telemetry
from registry.domain.actors import Actor
from registry.domain.storable import storable, storable_text
from registry.errors import Conflict, InvalidTransition, ValidationFailed
from registry.models import Deployment, Operation, OperationQueue, OperationState, Project, Transition
from registry.services import audit
from registry.services.permissions import require
from registry.services.transition import move

# Finished by reconcile, never claimed by a worker.
RECONCILED_KINDS = ("deploy",)
MAX_ATTEMPTS = 5
_KEEP_ENDED = timedelta(days=30)
_KEEP_ANSWERS = timedelta(hours=1)
# A pending operation whose hint is on the queue already is not announced again for this long.
_ANNOUNCE_EVERY = timedelta(seconds=20)
_LOG_LIMIT = 65536
_TRY_LIMIT_BYTES = 1024 * 1024
_ENDED = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED)


def operation_create(
    *,
    kind: str,
    queue: str,
    subject_type: str,
    subject_id: uuid.UUID,
    project: Project | None = None,
    params: Mapping[str, Any] | None = None,
    expires_at: datetime | None = None,
    actor: Actor,
) -> Operation:
    """Create a pending operation and hint at it after the commit."""
    operation = Operation.objects.create(
        kind=kind,
        queue=queue,
        subject_type=subject_type,
        subject_id=subject_id,
        project=project,
        params=dict(params or {}),
        actor_id=actor.user_id,
        expires_at=expires_at,
    )
    if kind not in RECONCILED_KINDS:
        signals.send_operation_ready(operation.id, queue)
    _publish(operation)
    return operation


def operation_claim(operation_id: uuid.UUID, owner: str, lease_seconds: int | None = None) -> Operation | None:
    """Take an operation that is pending, or running with an expired lease; None when somebody else has it or it ended.

    Of two claimers exactly one gets it. ``lease_seconds`` None: ``settings.OPERATION_LEASE_SECONDS``.
    An operation whose workers died five times fails.
    """
    now = timezone.now()
    operation = Operation.objects.filter(pk=operation_id).exclude(kind__in=RECONCILED_KINDS).first()
    if operation is None or operation.state in _ENDED:
        return None
    if operation.state == OperationState.RUNNING and operation.lease_until < now:
        if operation.cancel_requested:
            _end(operation, OperationState.CANCELLED, "cancelled while nobody worked on it")
            return None
        if operation.attempts >= MAX_ATTEMPTS:
            error = {"code": "worker_lost", "message": _("The worker was lost %d times.") % operation.attempts}
            _end(operation, OperationState.FAILED, "worker lost", error=error)
            return None
    fresh = Q(state=OperationState.PENDING, attempts=0)
    paused = Q(state=OperationState.PENDING, lease_until__lte=now)
    abandoned = Q(state=OperationState.RUNNING, lease_until__lt=now)
    with transaction.atomic():
        # One UPDATE decides between claimers; the attempts column makes a second look at the same facts miss.
        taken = Operation.objects.filter(
            fresh | paused | abandoned, pk=operation_id, attempts=operation.attempts, cancel_requested=False
        ).update(
            state=OperationState.RUNNING,
            lease_owner=owner,
            lease_until=now + _lease(lease_seconds),
            attempts=F("attempts") + 1,
            started_at=Coalesce(F("started_at"), Value(now)),
        )
        if not taken:
            return None
        if operation.state == OperationState.PENDING:
            _record_move(operation.id, operation.state, OperationState.RUNNING, f"claimed by {owner}", owner)
        operation.refresh_from_db()
        _publish(operation)
    return operation


def operation_renew(operation_id: uuid.UUID, owner: str, lease_seconds: int | None = None) -> bool:
    """Extend the lease; False: it was lost, cancelled or ended, so stop working."""
    mine = _mine(operation_id, owner)
    if mine.filter(cancel_requested=False).update(lease_until=timezone.now() + _lease(lease_seconds)):
        return True
    operation = mine.filter(cancel_requested=True).first()
    if operation is not None:
        _end(operation, OperationState.CANCELLED, "cancelled on request")
    return False


def operation_report(
    operation_id: uuid.UUID, owner: str, *, percent: int | None = None, message: str | None = None, log_line: str = ""
) -> bool:
    """Show progress; False: the lease was lost, so stop working."""
    columns: dict[str, Any] = {}
    if percent is not None:
        columns["progress_percent"] = max(0, min(100, percent))
    if message is not None:
        columns["message"] = storable_text(message)
    if log_line:
        longer = Concat(F("log"), Value(storable_text(log_line) + "\n"), output_field=TextField())
        columns["log"] = Right(longer, _LOG_LIMIT)
    if not columns:
        return _mine(operation_id, owner).exists()
    if not _mine(operation_id, owner).update(**columns):
        return False
    _publish_id(operation_id)
    return True


def operation_succeed(operation_id: uuid.UUID, owner: str, result: Mapping[str, Any] | None = None) -> bool:
    """Finish with a result; False: the lease was lost and nothing is written."""
    operation = _mine(operation_id, owner).first()
    if operation is None:
        return False
    columns: dict[str, Any] = {"result": storable(dict(result or {})), "progress_percent": 100}
    return _end(operation, OperationState.SUCCEEDED, "done", owner=owner, **columns)


def operation_fail(operation_id: uuid.UUID, owner: str, *, code: str, message: str, retry: bool = False) -> bool:
    """Finish with an error; with ``retry`` it goes back to pending after a growing pause, five attempts at most."""
    operation = _mine(operation_id, owner).first()
    if operation is None:
        return False
    message = storable_text(message)
    error = {"code": code, "message": message}
    if not retry or operation.attempts >= MAX_ATTEMPTS:
        return _end(operation, OperationState.FAILED, message, owner=owner, error=error, message=message)
    with transaction.atomic():
        pause = timedelta(seconds=2**operation.attempts)
        changed = _mine(operation_id, owner).update(
            state=OperationState.PENDING,
            lease_owner="",
            lease_until=timezone.now() + pause,
            message=_("Trying again: %(why)s") % {"why": message},
            error=error,
        )
        if changed:
            _record_move(operation_id, OperationState.RUNNING, OperationState.PENDING, message, owner)
            _publish(operation)
    return bool(changed)


def operation_continue(operation_id: uuid.UUID, owner: str, *, message: str) -> bool:
    """Put an operation of which a part is done back into its queue: running -> pending, with its attempts anew.

    False: the lease was lost, or somebody cancelled it meanwhile.
    """
    with transaction.atomic():
        changed = (
            _mine(operation_id, owner)
            .filter(cancel_requested=False)
            .update(
                state=OperationState.PENDING,
                lease_owner="",
                lease_until=timezone.now(),
                attempts=0,
                message=storable_text(message),
            )
        )
        if changed:
            operation = Operation.objects.get(pk=operation_id)
            _record_move(operation_id, OperationState.RUNNING, OperationState.PENDING, message, owner)
            signals.send_operation_ready(operation_id, operation.queue)
            _publish(operation)
            return True
    operation_renew(operation_id, owner)  # Ends it when it was cancelled.
    return False


def operation_cancel(*, operation: Operation, actor: Actor) -> Operation:
    """Cancel: pending ones end now; a running one is asked to stop (its next renewal answers False).

    Raises:
        InvalidTransition: it has ended, or it is a deploy (roll back instead).
    """
    if operation.actor_id is None or operation.actor_id != actor.user_id:
        require(actor, "operation.cancel", operation)
    if operation.kind in RECONCILED_KINDS:
        raise InvalidTransition(_("A deployment is not cancelled; roll it back."))
    with transaction.atomic():
        pending = Operation.objects.filter(pk=operation.pk, state=OperationState.PENDING)
        if pending.exists() and _end(operation, OperationState.CANCELLED, f"cancelled by {actor.name}"):
            pass
        elif not Operation.objects.filter(pk=operation.pk, state=OperationState.RUNNING).update(cancel_requested=True):
            raise InvalidTransition(_("The operation has ended already."))
        audit.record(actor=actor, action="operation.cancel", obj=operation)
    operation.refresh_from_db()
    _publish(operation)
    return operation


def operations_due(now: datetime, *, limit: int = 100) -> list[tuple[uuid.UUID, str]]:
    """Return (id, queue) of operations that nobody works on: pending ones, and running ones with an expired lease.

    A new pending one is named once in 20 seconds, so that a long queue does not fill up with copies of its ids.
    """
    waiting = Q(state=OperationState.PENDING, lease_until__lte=now)
    abandoned = Q(state=OperationState.RUNNING, lease_until__lt=now)
    rows = list(
        Operation.objects.filter(waiting | abandoned)
        .exclude(kind__in=RECONCILED_KINDS)
        .order_by("created_at")
        .values_list("id", "queue")[:limit]
    )
    Operation.objects.filter(
        pk__in=[operation_id for operation_id, _queue in rows], state=OperationState.PENDING, attempts=0
    ).update(lease_until=now + _ANNOUNCE_EVERY)
    return rows


def reconciled_report(operation_id: uuid.UUID, *, percent: int, message: str) -> bool:
    """Show progress of a deploy; returns whether anything changed."""
    changed = (
        Operation.objects.filter(pk=operation_id, kind__in=RECONCILED_KINDS)
        .exclude(state__in=_ENDED)
        .exclude(state=OperationState.RUNNING, progress_percent=percent, message=message)
        .update(
            state=OperationState.RUNNING,
            progress_percent=percent,
            message=message,
            started_at=Coalesce(F("started_at"), Value(timezone.now())),
        )
    )
    if changed:
        _publish_id(operation_id)
    return bool(changed)


def reconciled_finish(operation_id: uuid.UUID, *, state: str, message: str, code: str = "") -> None:
    """Finish a deploy; nothing happens when it has ended."""
    operation = Operation.objects.filter(pk=operation_id, kind__in=RECONCILED_KINDS).first()
    if operation is None or operation.state in _ENDED:
        return
    columns: dict[str, Any] = {"message": message}
    if code:
        columns["error"] = {"code": code, "message": message}
    if state == OperationState.SUCCEEDED:
        columns |= {"progress_percent": 100, "result": {"deployment": str(operation.subject_id)}}
    if operation.state == OperationState.PENDING and state == OperationState.SUCCEEDED:
        move(operation, "state", OperationState.RUNNING, cause="reconciled", actor=Actor.system("reconcile"))
    _end(operation, state, message, **columns)


def try_it(
    *, deployment: Deployment, inputs: Mapping[str, Any], version: int | None = None, unit: str = "", actor: Actor
) -> Operation:
    """Ask a node of the deployment for one prediction: operation ``infer`` on queue interactive, kept an hour.

    ``inputs`` is a v2 inference request as JSON (``{"inputs": [...]}``). Params of the operation:
    ``{"served_name", "version", "unit", "body"}``; ``version`` 0 and an empty ``unit`` let the node choose by weight.

    Raises:
        ValidationFailed: it is no such request, too large, or names a version that is not deployed.
        Conflict: nothing is deployed.
    """
    require(actor, "deployment.infer", deployment)
    routes = list(deployment.routes.select_related("version"))
    if not routes:
        raise Conflict(_("Nothing is deployed here yet."))
    if not isinstance(inputs.get("inputs"), list) or not inputs["inputs"]:
        message = _("The request needs a list “inputs”.")
        raise ValidationFailed(message, errors=[{"field": "inputs", "message": message}])
    if len(json.dumps(inputs)) > _TRY_LIMIT_BYTES:
        raise ValidationFailed(_("A trial request has at most 1 MiB."))
    if version is not None or unit:
        wanted = [route for route in routes if (not unit or route.unit == unit)]
        wanted = [route for route in wanted if version is None or route.version.number == version]
        if not wanted:
            message = _("This version is not part of the deployment.")
            raise ValidationFailed(message, errors=[{"field": "version", "message": message}])
        version, unit = wanted[0].version.number, wanted[0].unit
    with transaction.atomic():
        # What was sent stays out of the log: it may be somebody's data.
        audit.record(actor=actor, action="deployment.infer", obj=deployment, after={"version": version, "unit": unit})
        return operation_create(
            kind="infer",
            queue=OperationQueue.INTERACTIVE,
            subject_type="deployment",
            subject_id=deployment.id,
            project=deployment.project,
            params={
                "served_name": deployment.served_name,
                "version": version or 0,
                "unit": unit,
                "body": dict(inputs),
            },
            expires_at=timezone.now() + _KEEP_ANSWERS,
            actor=actor,
        )


def operations_purge(now: datetime) -> int:
    """Delete expired operations, and ended ones older than 30 days; return how many."""
    expired = Q(expires_at__lt=now)
    old = Q(state__in=_ENDED, finished_at__lt=now - _KEEP_ENDED)
    ids = list(Operation.objects.filter(expired | old).values_list("id", flat=True)[:5000])
    Operation.objects.filter(pk__in=ids).delete()
    return len(ids)


def _mine(operation_id: uuid.UUID, owner: str) -> QuerySet[Operation]:
    return Operation.objects.filter(pk=operation_id, lease_owner=owner, state=OperationState.RUNNING)


def _lease(seconds: int | None) -> timedelta:
    return timedelta(seconds=settings.OPERATION_LEASE_SECONDS if seconds is None else seconds)


def _end(operation: Operation, to: str, cause: str, *, owner: str | None = None, **columns: Any) -> bool:
    """Move to an ended state if nobody else did; with ``owner`` only while it holds the lease."""
    with transaction.atomic():
        rows = Operation.objects.filter(pk=operation.pk, state=operation.state)
        if owner is not None:
            rows = rows.filter(lease_owner=owner)
        if not rows.update(state=to, lease_owner="", finished_at=timezone.now(), **columns):
            return False
        _record_move(operation.id, operation.state, to, cause, owner or "")
        operation.state = to
        _publish(operation)
    return True


def _record_move(operation_id: uuid.UUID, before: str, to: str, cause: str, name: str) -> None:
    Transition.objects.create(
        object_type="operation",
        object_id=operation_id,
        from_state=before,
        to_state=to,
        cause=cause[:1000],
        actor_name=name[:200],
    )


def _publish(operation: Operation) -> None:
    telemetry.publish_on_commit(f"operation:{operation.id}", project=operation.project_id)


def _publish_id(operation_id: uuid.UUID) -> None:
    telemetry.publish_on_commit(f"operation:{operation_id}")
