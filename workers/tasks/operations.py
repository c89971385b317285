"""Runs one operation: claim, renew in the background, dispatch by kind, finish. Effects are idempotent."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError
from django.utils.translation import gettext as _

from registry.errors import RegistryError
from registry.models import Operation, OperationState
from registry.services import operations
from workers.checks.validation import abandon_validation, validate_version
from workers.checks.verdicts import VersionRejected
from workers.locks.leases import Lease, LeaseLost, new_owner
from workers.node_client.errors import NodeClientError
from workers.tasks.interactive import infer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handler:
    """``run`` does the work and returns the result. ``give_up`` cleans up once no attempt will follow."""

    run: Callable[[Operation, Lease], Mapping[str, Any]]
    give_up: Callable[[Operation, str], None] | None = None


HANDLERS: dict[str, Handler] = {
    "validate_version": Handler(run=validate_version, give_up=abandon_validation),
    "infer": Handler(run=infer),
}


def work_on(operation_id: uuid.UUID, handlers: Mapping[str, Handler] = HANDLERS) -> bool:
    """Claim the operation and do it; return whether this call finished it.

    A worker that dies in here leaves a lease that runs out; the next one does the work again from the rows.
    """
    owner = new_owner()
    operation = operations.operation_claim(operation_id, owner)
    if operation is None:
        return False
    handler = handlers.get(operation.kind)
    if handler is None:
        text = _("This version of Flotilla cannot do operations of kind %(kind)s.") % {"kind": operation.kind}
        return operations.operation_fail(operation_id, owner, code="unknown_kind", message=text)
    try:
        with Lease(operation_id, owner) as lease:
            result = handler.run(operation, lease)
            lease.check()
        return operations.operation_succeed(operation_id, owner, result)
    except LeaseLost:
        _after_loss(operation_id, handler)
        return False
    except VersionRejected as error:
        return operations.operation_fail(operation_id, owner, code="version_rejected", message=str(error))
    except NodeClientError as error:
        return operations.operation_fail(operation_id, owner, code=f"node_{error.code}", message=error.message)
    except RegistryError as error:
        _retry(operation_id, owner, handler, code=error.code, message=error.message)
    except DatabaseError:
        raise  # the lease runs out and the work is done again
    except Exception as error:
        _log.exception("operation.failed operation=%s kind=%s", operation_id, operation.kind)
        text = _("An internal error: %(error)s") % {"error": type(error).__name__}
        _retry(operation_id, owner, handler, code="internal", message=text)
    return False


def _retry(operation_id: uuid.UUID, owner: str, handler: Handler, *, code: str, message: str) -> None:
    """Hand the operation back for another attempt; after the last one let the handler clean up."""
    operations.operation_fail(operation_id, owner, code=code, message=message, retry=True)
    operation = Operation.objects.get(pk=operation_id)
    if handler.give_up is not None and operation.state == OperationState.FAILED:
        handler.give_up(operation, message)


def _after_loss(operation_id: uuid.UUID, handler: Handler) -> None:
    """Clean up after a cancelled operation; when the lease merely went to another worker, that one goes on."""
    operation = Operation.objects.filter(pk=operation_id).first()
    if operation is not None and operation.state == OperationState.CANCELLED and handler.give_up is not None:
        handler.give_up(operation, _("The operation was cancelled."))
