"""Measuring versions on nodes: asked for here, done by a worker, kept with the version.

While it is measured a copy of the version is part of the node's desired state (a ``ScratchUnit``), under a name that
serves nobody. The copy goes in the end, whatever the end is: see ``scratch_sweep``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from registry import telemetry
from registry.domain.actors import Actor
from registry.domain.measurements import DEFAULT_SECONDS, Cell, Grid, default_batches, grid_problems, scratch_config
from registry.errors import Conflict, ValidationFailed
from registry.models import (
    ConfigRevision,
    ModelVersion,
    NodeKind,
    NodeState,
    Operation,
    OperationQueue,
    OperationState,
    ScratchUnit,
    ServingNode,
    VersionMeasurement,
    VersionState,
)
from registry.selectors.configs import config_latest
from registry.selectors.fleet import fleets_of, is_reachable
from registry.services import audit
from registry.services.code import code_permit
from registry.services.nodes import node_generation_raise
from registry.services.operations import operation_create
from registry.services.permissions import require
from serving_node.contract.control import SCRATCH_PREFIX
from serving_node.contract.digests import config_digest
from serving_node.contract.model_config import parse_json
from serving_node.contract.signature import ModelSignature

KIND = "bench_model"
_UNENDED = (OperationState.PENDING, OperationState.RUNNING)


def measurement_permission(node: ServingNode) -> str:
    """Return what it takes to measure on a node: more where one of its environments needs approvals."""
    guarded = any(fleet.environment.requires_approval for fleet in fleets_of(node))
    return "version.measure_guarded" if guarded else "version.measure"


def measurement_start(
    *,
    version: ModelVersion,
    node: ServingNode,
    config: ConfigRevision | None = None,
    batch: Sequence[int] = (),
    instances: Sequence[int] = (1,),
    seconds: float = DEFAULT_SECONDS,
    shapes: Mapping[str, Sequence[int]] | None = None,
    actor: Actor,
) -> Operation:
    """Ask for a measurement: operation ``bench_model`` on queue jobs. See ``registry.domain.measurements.Grid``.

    ``config`` None: the newest of the model; ``batch`` empty: the usual sizes up to the config's largest.

    Raises:
        ValidationFailed: the version or the config cannot be measured, or the grid makes no sense.
        Conflict: the node is not there for it, or another measurement is under way on it.
    """
    require(actor, measurement_permission(node), version)
    if version.state != VersionState.READY or version.signature is None:
        raise ValidationFailed(_("Only ready versions can be measured."))
    config = config or config_latest(version.model)
    if config is None or config.model_id != version.model_id:
        message = _("The model has no such config.")
        raise ValidationFailed(message, errors=[{"field": "config", "message": message}])
    parsed = parse_json(config.body)
    wanted = Grid(
        tuple(sorted(set(batch))) or default_batches(parsed),
        tuple(sorted(set(instances))),
        seconds,
        {name: tuple(sizes) for name, sizes in (shapes or {}).items()},
    )
    errors = grid_problems(wanted, parsed, ModelSignature.from_json(version.signature))
    if errors:
        raise ValidationFailed(errors[0]["message"], errors=errors)
    with transaction.atomic():
        locked = ServingNode.objects.select_for_update(no_key=True).get(pk=node.pk)
        _require_free(locked)
        code_permit(version=version, config=parsed, actor=actor)
        audit.record(
            actor=actor,
            action="version.measure",
            obj=version,
            after={"node": node.name, "config": config.number, "grid": wanted.to_json()},
        )
        return operation_create(
            kind=KIND,
            queue=OperationQueue.JOBS,
            subject_type="version",
            subject_id=version.id,
            project=version.model.project,
            params={"node": str(node.id), "config": str(config.id), "grid": wanted.to_json()},
            actor=actor,
        )


def scratch_place(
    *, operation: Operation, owner: str, version: ModelVersion, config: ConfigRevision, instances: int
) -> ScratchUnit:
    """Let the node of the operation hold a copy of the version with so many instances; the copy before it goes.

    Whoever holds the operation's lease (``owner``) has the copy to itself from now on.
    """
    node_id = operation.params["node"]
    name = f"{SCRATCH_PREFIX}{operation.id.hex}"
    body = scratch_config(config.body, name, instances)
    with transaction.atomic():
        scratch, _made = ScratchUnit.objects.update_or_create(
            operation=operation,
            defaults={
                "node_id": node_id,
                "version": version,
                "served_name": name,
                # A new id for each load: also one that failed, or that another attempt left, is loaded afresh.
                "unit": f"measure-{operation.id.hex}-{operation.attempts}-{instances}",
                "config_body": body,
                "config_digest": config_digest(parse_json(body)),
                "owner": owner,
            },
        )
        node_generation_raise([scratch.node_id])
    return scratch


def scratch_remove(*, operation: Operation, owner: str) -> None:
    """Take the copy off the node, unless somebody else has taken the operation over. Idempotent."""
    with transaction.atomic():
        _remove(list(ScratchUnit.objects.select_for_update().filter(operation=operation, owner=owner)))


def scratch_sweep() -> int:
    """Take copies off nodes whose operation has ended, however it did; return how many.

    A worker that was killed leaves its copy until the next one has taken the operation over, or it has failed for good.
    """
    with transaction.atomic():
        left = ScratchUnit.objects.select_for_update(of=("self",)).exclude(operation__state__in=_UNENDED)
        return _remove(list(left))


def measurement_record(
    *, operation: Operation, version: ModelVersion, config: ConfigRevision, grid: Grid, cells: Sequence[Cell]
) -> VersionMeasurement:
    """Keep what was measured with the version; doing it again for one operation changes nothing."""
    node = ServingNode.objects.get(pk=operation.params["node"])
    with transaction.atomic():
        measurement, made = VersionMeasurement.objects.get_or_create(
            operation=operation,
            defaults={
                "version": version,
                "node": node,
                "node_name": node.name,
                "hardware": _hardware(node),
                "config": config,
                "config_number": config.number,
                "config_digest": config.digest,
                "grid": grid.to_json(),
                "cells": [cell.to_json() for cell in cells],
                "created_by_id": operation.actor_id,
            },
        )
        if made:
            telemetry.publish_on_commit(f"version:{version.id}", project=version.model.project_id)
    return measurement


def _remove(scratches: list[ScratchUnit]) -> int:
    ScratchUnit.objects.filter(pk__in=[scratch.pk for scratch in scratches]).delete()
    node_generation_raise(scratch.node_id for scratch in scratches)
    return len(scratches)


def _require_free(node: ServingNode) -> None:
    """Raise Conflict with the sentence why nothing can be measured on the node now."""
    problem = ""
    words = {"node": node.name}
    if node.kind != NodeKind.FLOTILLA:
        problem = _("Node %(node)s is not one of Flotilla's own; it cannot be measured.")
    elif node.state != NodeState.READY:
        problem = _("Node %(node)s is %(state)s; choose one that is ready.")
        words["state"] = node.get_state_display().lower()
    elif not is_reachable(node, timezone.now()):
        problem = _("Node %(node)s does not answer; choose another one.")
    else:
        under_way = Q(kind=KIND, state__in=_UNENDED, params__node=str(node.id))
        if Operation.objects.filter(under_way).exists():
            problem = _("Another measurement is under way on node %(node)s; wait for its end, or cancel it.")
    if problem:
        text = problem % words
        raise Conflict(text, errors=[{"field": "node", "message": text}])


def _hardware(node: ServingNode) -> dict[str, Any]:
    kept = ("platform", "cpu_count", "memory_bytes", "gpus", "python_version", "flotilla_version", "backends")
    return {name: node.inventory[name] for name in kept if name in node.inventory}
