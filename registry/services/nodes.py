"""The generation of what a node should do."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db.models import F

from registry import signals
from registry.models import ServingNode


def node_generation_raise(node_ids: Iterable[uuid.UUID]) -> None:
    """Raise the desired generation of nodes in the caller's transaction and hint at it after the commit.

    Concurrency: rows are locked in the order of their ids, so that two callers cannot wait for each other.
    """
    ids = sorted(set(node_ids))
    locked = ServingNode.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
    for node_id in list(locked.values_list("pk", flat=True)):
        ServingNode.objects.filter(pk=node_id).update(desired_generation=F("desired_generation") + 1)
        signals.send_node_desired_changed(node_id)
