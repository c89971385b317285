"""Long work: rows with a lease. The queue only carries ids; a lost message is found by its expired lease."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from registry.domain.actors import Actor
from registry.models import Deployment, Operation, Project

# Finished by reconcile, never claimed by a worker.
RECONCILED_KINDS = ("deploy",)


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
    raise NotImplementedError


def operation_claim(operation_id: uuid.UUID, owner: str, lease_seconds: int | None = None) -> Operation | None:
    """Take an operation that is pending, or running with an expired lease; None when somebody else has it or it ended.

    Of two claimers exactly one gets it. ``lease_seconds`` None: ``settings.OPERATION_LEASE_SECONDS``.
    """
    raise NotImplementedError


def operation_renew(operation_id: uuid.UUID, owner: str, lease_seconds: int | None = None) -> bool:
    """Extend the lease; False: it was lost, cancelled or ended, so stop working."""
    raise NotImplementedError


def operation_report(
    operation_id: uuid.UUID, owner: str, *, percent: int | None = None, message: str | None = None, log_line: str = ""
) -> bool:
    """Show progress; False: the lease was lost, so stop working."""
    raise NotImplementedError


def operation_succeed(operation_id: uuid.UUID, owner: str, result: Mapping[str, Any] | None = None) -> bool:
    """Finish with a result; False: the lease was lost and nothing is written."""
    raise NotImplementedError


def operation_fail(operation_id: uuid.UUID, owner: str, *, code: str, message: str, retry: bool = False) -> bool:
    """Finish with an error; with ``retry`` it goes back to pending after a growing pause, five attempts at most."""
    raise NotImplementedError


def operation_cancel(*, operation: Operation, actor: Actor) -> Operation:
    """Cancel: pending ones end now; a running one is asked to stop (its next renewal answers False).

    Raises:
        InvalidTransition: it has ended, or it is a deploy (roll back instead).
    """
    raise NotImplementedError


def operations_due(now: datetime, *, limit: int = 100) -> list[tuple[uuid.UUID, str]]:
    """Return (id, queue) of operations that nobody works on: pending ones, and running ones with an expired lease."""
    raise NotImplementedError


def try_it(
    *, deployment: Deployment, inputs: Mapping[str, Any], version: int | None = None, unit: str = "", actor: Actor
) -> Operation:
    """Ask a node of the deployment for one prediction: operation ``infer`` on queue interactive, kept an hour.

    ``inputs`` is a v2 inference request as JSON (``{"inputs": [...]}``). Params of the operation:
    ``{"served_name", "version", "unit", "body"}``.

    Raises:
        ValidationFailed: it is no such request, too large, or names a version that is not deployed.
    """
    raise NotImplementedError


def operations_purge(now: datetime) -> int:
    """Delete expired operations, and ended ones older than 30 days; return how many."""
    raise NotImplementedError
