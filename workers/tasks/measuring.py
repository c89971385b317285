"""Measures a version on a node: load a copy, send requests, note the figures; the copy is gone at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.measurements import REQUESTS_PER_INSTANCE, Answers, Cell, Grid, cell_of, input_shapes
from registry.models import ConfigRevision, ModelVersion, Operation, ScratchUnit, ServingNode
from registry.services.measurements import measurement_record, scratch_place, scratch_remove
from serving_node.contract.control import Observed, ObservedUnit
from serving_node.contract.model_config import ModelConfig, parse_json
from serving_node.contract.signature import ModelSignature
from serving_node.contract.states import UnitState
from workers.locks import Contended
from workers.locks.leases import Lease
from workers.node_client.address import address_of, connect
from workers.node_client.client import Connect, NodeClient, Target, call
from workers.node_client.errors import NodeClientError, NodeErrorCode
from workers.node_client.made_requests import made_request
from workers.reconcile import reconcile_node
from workers.tasks.load_run import load_run

# Fetching and loading together; a node that is busy with other models takes them first.
LOAD_SECONDS = 300.0
# A task of a worker is ended after 15 minutes; what is measured by then must have been kept.
ALL_SECONDS = 720.0
_POLL_SECONDS = 2.0


def bench_model(operation: Operation, lease: Lease, *, connect: Connect = connect) -> Mapping[str, Any]:
    """Measure the version ``operation.subject_id`` and return ``{"measurement", "cells", "failed"}``.

    A combination that the node refuses is noted with its reason, and the others are measured.

    Raises:
        NodeClientError: the node is gone, or nothing could be measured; the message is for the person.
    """
    bench = _Bench(operation, lease, connect)
    try:
        cells = bench.run()
    finally:
        scratch_remove(operation=operation, owner=lease.owner)
        with suppress(NodeClientError, Contended):
            reconcile_node(bench.node.pk, connect=connect)
    failed = [cell for cell in cells if not cell.requests]
    if len(failed) == len(cells):
        raise NodeClientError(NodeErrorCode.NODE_FAILED, failed[0].error)
    measurement = measurement_record(
        operation=operation, version=bench.version, config=bench.config, grid=bench.grid, cells=cells
    )
    return {"measurement": str(measurement.pk), "cells": len(cells), "failed": len(failed)}


class _Bench:
    """One attempt at a measurement."""

    def __init__(self, operation: Operation, lease: Lease, connect: Connect) -> None:
        self._operation = operation
        self._lease = lease
        self._connect = connect
        self.version = ModelVersion.objects.select_related("model").get(pk=operation.subject_id)
        self.node = ServingNode.objects.get(pk=operation.params["node"])
        self.config = ConfigRevision.objects.get(pk=operation.params["config"])
        self.grid = Grid.from_json(operation.params["grid"])
        self._parsed: ModelConfig = parse_json(self.config.body)
        self._signature = ModelSignature.from_json(self.version.signature)
        self._done = 0
        self._end = time.monotonic() + ALL_SECONDS

    def run(self) -> list[Cell]:
        """Return every combination, measured or with the reason why not."""
        cells: list[Cell] = []
        problem = ""
        for instances in sorted(self.grid.instances):
            # What did not fit will not fit with more instances either.
            if not problem:
                scratch, seen, problem = self._load(instances)
            blank = [self._blank(batch, instances) for batch in sorted(self.grid.batch)]
            if problem:
                cells += [Cell(**{**cell.to_json(), "error": problem}) for cell in blank]
                continue
            loaded = {"load_seconds": seen.load_seconds, "memory_bytes": seen.memory_bytes}
            cells += [self._measure(scratch, Cell(**{**cell.to_json(), **loaded})) for cell in blank]
        return cells

    def _blank(self, batch: int, instances: int) -> Cell:
        return Cell(batch=batch, instances=instances, in_flight=REQUESTS_PER_INSTANCE * instances)

    def _load(self, instances: int) -> tuple[ScratchUnit, ObservedUnit, str]:
        """Let the node load a copy; return it, what the node says of it, and why it could not be loaded."""
        words = {"node": self.node.name, "instances": instances}
        self._report(_("Loading a copy with instance count %(instances)d on %(node)s") % words)
        scratch = scratch_place(
            operation=self._operation,
            owner=self._lease.owner,
            version=self.version,
            config=self.config,
            instances=instances,
        )
        with suppress(Contended):  # somebody else pushes the same state
            reconcile_node(self.node.pk, connect=self._connect)
        seen = self._wait_loaded(scratch)
        if seen is None:
            text = _("%(node)s did not load the version within %(seconds)d s.")
            problem = text % {**words, "seconds": LOAD_SECONDS}
            return scratch, ObservedUnit(scratch.served_name, scratch.unit, 0, UnitState.LOADING), problem
        if seen.state is UnitState.READY:
            return scratch, seen, ""
        reason = seen.reason.text if seen.reason is not None else _("no reason given")
        text = _("The version could not be loaded with instance count %(instances)d on %(node)s: %(reason)s")
        return scratch, seen, text % {**words, "reason": reason}

    def _wait_loaded(self, scratch: ScratchUnit) -> ObservedUnit | None:
        """Return what the node says once the copy is loaded or has failed; None when that takes too long."""
        deadline = min(time.monotonic() + LOAD_SECONDS, self._end)
        after: int | None = None
        while True:
            self._lease.check()
            observed: Observed = self._ask(partial(_observed, after))
            seen = next((unit for unit in observed.models if unit.unit == scratch.unit), None)
            if seen is not None and seen.state in (UnitState.READY, UnitState.FAILED):
                return seen
            if time.monotonic() > deadline:
                return None
            after = observed.sequence

    def _measure(self, scratch: ScratchUnit, cell: Cell) -> Cell:
        self._lease.check()
        if time.monotonic() > self._end:
            text = _("The measurement took more than %(minutes)d minutes; ask for fewer combinations.")
            return Cell(**{**cell.to_json(), "error": text % {"minutes": ALL_SECONDS / 60}})
        words = {"batch": cell.batch, "instances": cell.instances}
        shapes = input_shapes(self._signature, self._parsed, cell.batch, self.grid.shapes)
        request = made_request(self._signature, shapes)

        async def drive(client: NodeClient) -> Answers:
            return await load_run(
                client,
                scratch.served_name,
                Target(unit=scratch.unit),
                request,
                in_flight=cell.in_flight,
                seconds=self.grid.seconds,
                is_stopped=lambda: self._lease.is_lost,
            )

        measured = cell_of(cell, self._ask(drive))
        self._lease.check()
        self._done += 1
        line = _("Batch %(batch)d, instances %(instances)d: %(rate)s rows/s, p99 %(p99)s ms")
        if not measured.requests:
            line = _("Batch %(batch)d, instances %(instances)d: %(error)s")
        self._report(
            line
            % {
                **words,
                "rate": f"{measured.rows_per_second:g}",
                "p99": f"{measured.latency_p99_ms:g}",
                "error": measured.error,
            }
        )
        return measured

    def _ask(self, ask: Callable[[NodeClient], Any]) -> Any:
        """Ask the node. Raises NodeClientError UNREACHABLE with a sentence that says what is lost."""
        try:
            return call(self._connect, address_of(self.node), ask)
        except NodeClientError as error:
            if error.code is not NodeErrorCode.UNREACHABLE:
                raise
            text = _("Node %(node)s is gone, and the measurement with it: %(reason)s")
            words = {"node": self.node.name, "reason": error.message}
            raise NodeClientError(error.code, text % words) from error

    def _report(self, message: str) -> None:
        self._lease.report(min(5 + 90 * self._done // self.grid.cells, 95), message)


async def _observed(after: int | None, client: NodeClient) -> Observed:
    return await client.observed(after=after, timeout_seconds=_POLL_SECONDS)
