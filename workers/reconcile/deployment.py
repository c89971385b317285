"""One pass over one deployment: decide from facts, then push the nodes that are behind."""

from __future__ import annotations

import uuid

from django.utils import timezone

from registry.services.deployments import rollout_progress
from workers.locks import advisory_lock

_MAX_PASSES = 8


def reconcile_deployment(deployment_id: uuid.UUID) -> tuple[uuid.UUID, ...]:
    """Move the deployment's rollout, status and operation as the facts say; return the nodes that need a push.

    Safe to call at any time and any number of times.

    Raises:
        Contended: another pass over this deployment has not ended within two seconds.
    """
    push: set[uuid.UUID] = set()
    with advisory_lock("deployment", deployment_id):
        # Each pass makes at most one move, on fresh facts; the next one may follow at once.
        for _pass in range(_MAX_PASSES):
            progress = rollout_progress(deployment_id=deployment_id, now=timezone.now())
            push.update(progress.push)
            if not progress.changed:
                break
    return tuple(sorted(push))
