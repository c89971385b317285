"""Level-triggered passes: read what is wanted and what is seen, act, write the status last."""

from workers.reconcile.deployment import reconcile_deployment
from workers.reconcile.node import NodeOutcome, reconcile_node

__all__ = ["NodeOutcome", "reconcile_deployment", "reconcile_node"]
