"""One pass over one node: hand it its whole desired state and note what it answers."""

from __future__ import annotations

import logging
import uuid
from enum import StrEnum
from functools import partial

from django.utils import timezone
from django.utils.translation import gettext as _

from registry import signals
from registry.models import NodeState, ServingNode
from registry.selectors.deployments import deployments_on
from registry.selectors.desired import desired_state
from registry.services.fleet import node_observe, node_unreachable
from serving_node.contract.control import Desired, Observed
from workers.locks import advisory_lock
from workers.node_client.address import address_of, connect
from workers.node_client.client import Connect, NodeClient, call
from workers.node_client.errors import NodeClientError, NodeErrorCode

_log = logging.getLogger(__name__)

_ATTEMPTS = 3


class NodeOutcome(StrEnum):
    """How a pass ended."""

    PUSHED = "pushed"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"


def reconcile_node(node_id: uuid.UUID, *, connect: Connect = connect) -> NodeOutcome:
    """Push the node's desired state; a lost, doubled or late call of this changes nothing but latency.

    Raises:
        Contended: another pass over this node has not ended within two seconds (it may have read older facts).
    """
    with advisory_lock("node", node_id):
        node = ServingNode.objects.filter(pk=node_id).first()
        if node is None or not node.endpoints:
            return NodeOutcome.GONE
        try:
            observed = _push(node, connect)
        except NodeClientError as error:
            return _note_failure(node, error)
        # A retired node is told once that nothing is wanted of it; what it says no longer counts.
        if node.state != NodeState.RETIRED and node_observe(node=node, observed=observed, now=timezone.now()):
            for deployment_id in deployments_on(node).values_list("pk", flat=True):
                signals.send_deployment_touched(deployment_id)
        return NodeOutcome.PUSHED


def _push(node: ServingNode, connect: Connect) -> Observed:
    """PUT until the node takes it: a conflict is retried with what the database says by then."""
    for attempt in range(_ATTEMPTS):
        node.refresh_from_db()
        desired = desired_state(node)
        try:
            return call(connect, address_of(node), partial(_put, desired))
        except NodeClientError as error:
            if error.code is not NodeErrorCode.CONFLICT:
                raise
            # Content may be read newer than its number; then the next number is already there to be read.
            node.refresh_from_db(fields=["desired_generation", "epoch"])
            unchanged = (node.epoch, node.desired_generation) == (desired.epoch, desired.generation)
            if unchanged or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def _put(desired: Desired, client: NodeClient) -> Observed:
    return await client.put_desired(desired)


def _note_failure(node: ServingNode, error: NodeClientError) -> NodeOutcome:
    text = error.message
    if error.code is NodeErrorCode.CONFLICT:
        text = _(
            "The node refuses its desired state: %(reason)s. After restoring a database, raise the node's epoch."
        ) % {"reason": error.message.rstrip(".")}
    elif error.code is NodeErrorCode.UNAUTHORIZED:
        text = _("The node does not accept the control plane's secret; let it join again.")
    _log.warning("node.push_failed node=%s code=%s reason=%s", node.name, error.code, error.message)
    node_unreachable(node=node, error=text, now=timezone.now())
    return NodeOutcome.REFUSED if error.permanent else NodeOutcome.UNREACHABLE
