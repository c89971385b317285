"""The whole wanted state of one node, from all deployments whose fleet includes it."""

from __future__ import annotations

from registry.models import ServingNode
from serving_node.contract.control import Desired


def desired_state(node: ServingNode) -> Desired:
    """Return the message for the node: epoch, generation, models with routes, units and files, and drain.

    The generation is read before the content, so that content may be newer than its number but never older.
    """
    raise NotImplementedError
