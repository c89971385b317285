"""Runs one operation: claim, renew in the background, dispatch by kind, finish. Effects are idempotent."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.db import DatabaseError, DataError
from django.utils.translation import gettext as _

from registry.errors import RegistryError
from registry.models import Operation
from registry.services import operations
from registry.services.checks import KIND as CHECK_VERSION
from registry.services.fetching import KIND as FETCH_VERSION
from workers.checks.again import check_version
from workers.checks.fetching import fetch_version
from workers.checks.validation import validate_version
from workers.checks.verdicts import VersionRejected
from workers.locks.leases import Lease, LeaseLost, Unfinished, new_owner
from workers.node_client.errors import NodeClientError
from workers.tasks.interactive import infer
from workers.tasks.logs import deployment_logs, node_logs
from workers.tasks.measuring import bench_model

_log = logging.getLogger(__name__)


Handler = Callable[[Operation, Lease], Mapping[str, Any]]

HANDLERS: dict[str, Handler] = {
    "validate_version": validate_version,
    FETCH_VERSION: fetch_version,
    "infer": infer,
    "bench_model": bench_model,
    "node_logs": node_logs,
    "deployment_logs": deployment_logs,
    CHECK_VERSION: check_version,
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
            result = handler(operation, lease)
            lease.check()
        return operations.operation_succeed(operation_id, owner, result)
    except LeaseLost:
        return False  # somebody else goes on, or it was cancelled
    except Unfinished as error:
        operations.operation_continue(operation_id, owner, message=str(error))
    except VersionRejected as error:
        return operations.operation_fail(operation_id, owner, code="version_rejected", message=str(error))
    except NodeClientError as error:
        return operations.operation_fail(operation_id, owner, code=f"node_{error.code}", message=error.message)
    except RegistryError as error:
        operations.operation_fail(operation_id, owner, code=error.code, message=error.message, retry=True)
    except DataError as error:
        # The database is there and refuses what we write: doing it again would end the same way.
        _log.exception("operation.failed operation=%s kind=%s", operation_id, operation.kind)
        text = _("An internal error: %(error)s") % {"error": type(error).__name__}
        operations.operation_fail(operation_id, owner, code="internal", message=text)
    except DatabaseError:
        raise  # the lease runs out and the work is done again
    except Exception as error:
        _log.exception("operation.failed operation=%s kind=%s", operation_id, operation.kind)
        text = _("An internal error: %(error)s") % {"error": type(error).__name__}
        operations.operation_fail(operation_id, owner, code="internal", message=text, retry=True)
    return False
