"""The tasks: ids in, everything else read again. Each is short; the work is in the packages below.

A failing task is not retried by Celery: beat finds what is still to do within seconds.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from celery import shared_task
from django.utils import timezone

from registry.services.approval_progress import approvals_advance, approvals_void_changed
from registry.services.audit import seal_pending
from registry.services.checks import checks_stranded
from registry.services.measurements import scratch_sweep
from registry.services.samples import rollup
from workers import reconcile
from workers.checks.validation import reject_stranded
from workers.locks import Contended, advisory_lock
from workers.tasks import sweeping
from workers.tasks.hints import DELIVER_WEBHOOKS, RECONCILE_DEPLOYMENT, RECONCILE_NODE, RUN_OPERATION, sender
from workers.tasks.operations import work_on
from workers.tasks.tidying import tidy_up
from workers.webhooks import deliver_due


@shared_task(name=RUN_OPERATION)
def run_operation(operation_id: str) -> None:
    """Do one operation under its lease; nothing when somebody else has it or it has ended."""
    work_on(uuid.UUID(operation_id))


@shared_task(name=RECONCILE_NODE)
def reconcile_node(node_id: str) -> None:
    """Push one node's desired state."""
    with suppress(Contended):
        reconcile.reconcile_node(uuid.UUID(node_id))


@shared_task(name=RECONCILE_DEPLOYMENT)
def reconcile_deployment(deployment_id: str) -> None:
    """Look at one deployment and push the nodes that are behind."""
    with suppress(Contended):
        for node_id in reconcile.reconcile_deployment(uuid.UUID(deployment_id)):
            sender.send(RECONCILE_NODE, node_id, "control")


@shared_task(name=DELIVER_WEBHOOKS)
def deliver_webhooks() -> None:
    """Deliver what is due to webhooks; one worker at a time does, so that slow receivers hold up no other task."""
    with suppress(Contended), advisory_lock("role", "webhooks", wait_seconds=0):
        deliver_due()


@shared_task(name="workers.sweep")
def sweep() -> None:
    """Find what lost hints left behind: due operations, nodes behind, unsettled deployments, copies, deliveries.

    And start the approved changes whose wait or window has come.
    """
    reject_stranded()
    checks_stranded()
    scratch_sweep()
    with suppress(Contended), advisory_lock("role", "approvals", wait_seconds=0):
        approvals_advance()
    now = timezone.now()
    for operation_id, queue in sweeping.due_operations(now):
        sender.send(RUN_OPERATION, operation_id, queue)
    for node_id in sweeping.nodes_behind():
        sender.send(RECONCILE_NODE, node_id, "control")
    for deployment_id in sweeping.deployments_unsettled(now):
        sender.send(RECONCILE_DEPLOYMENT, deployment_id, "control")
    if sweeping.webhooks_wait(now):
        sender.send(DELIVER_WEBHOOKS, None, "control")


@shared_task(name="workers.seal_audit")
def seal_audit(everything: bool = False) -> None:
    """Chain the newest audit rows, or all that were left out."""
    with suppress(Contended), advisory_lock("role", "seal-audit", wait_seconds=0):
        seal_pending(everything=everything)


@shared_task(name="workers.void_approvals")
def void_approvals() -> None:
    """Void the requests whose plan has changed since somebody asked."""
    with suppress(Contended), advisory_lock("role", "void-approvals", wait_seconds=0):
        approvals_void_changed()


@shared_task(name="workers.roll_up")
def roll_up() -> None:
    """Make coarse samples of fine ones."""
    with suppress(Contended), advisory_lock("role", "samples", wait_seconds=0):
        rollup(timezone.now())


@shared_task(name="workers.tidy")
def tidy() -> None:
    """Make and drop partitions, expire and delete what nobody needs any more."""
    with suppress(Contended), advisory_lock("role", "tidy", wait_seconds=0):
        tidy_up(timezone.now())
