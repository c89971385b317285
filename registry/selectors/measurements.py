"""Measurements of versions, and which of them compare."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from registry.domain.actors import Actor
from registry.domain.measurements import Cell
from registry.models import (
    ModelVersion,
    NodeKind,
    NodeState,
    Operation,
    ServingNode,
    VersionMeasurement,
)
from registry.selectors.accounts import projects_of
from registry.selectors.fleet import is_reachable
from registry.selectors.lookup import one_by_id


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """One combination, and the same one of an earlier version; None when that was not measured."""

    cell: Cell
    before: Cell | None

    @property
    def rows_change(self) -> float | None:
        """Change of the rows per second as a share of the earlier ones, None when nothing compares."""
        if self.before is None or self.before.rows_per_second <= 0 or not self.cell.requests:
            return None
        return self.cell.rows_per_second / self.before.rows_per_second - 1


@dataclass(frozen=True, slots=True)
class ComparedMeasurement:
    """A measurement with the newest one of an earlier version on the same node, None when there is none."""

    measurement: VersionMeasurement
    before: VersionMeasurement | None
    cells: tuple[ComparedCell, ...]


def measurements_of(version: ModelVersion) -> QuerySet[VersionMeasurement]:
    """Return the measurements of a version, newest first."""
    rows = version.measurements.select_related("created_by", "version__model", "config", "node")
    return rows.order_by("-created_at")


def measurement_get(actor: Actor, measurement_id: uuid.UUID | str) -> VersionMeasurement:
    """Return a measurement by id.

    Raises:
        NotFound: it does not exist, or the actor may not see it.
    """
    rows = VersionMeasurement.objects.filter(version__model__project__in=projects_of(actor))
    return one_by_id(
        rows.select_related("created_by", "version__model__project", "config", "node"),
        measurement_id,
        _("There is no such measurement."),
    )


def measurement_compared(measurement: VersionMeasurement) -> ComparedMeasurement:
    """Return the measurement beside that of the nearest earlier version that was measured on its node."""
    version = measurement.version
    before = (
        VersionMeasurement.objects.filter(
            version__model_id=version.model_id, version__number__lt=version.number or 0, node_name=measurement.node_name
        )
        .select_related("version__model")
        .order_by("-version__number", "-created_at")
        .first()
    )
    earlier = {(cell.batch, cell.instances): cell for cell in cells_of(before)} if before is not None else {}
    cells = tuple(ComparedCell(cell, earlier.get((cell.batch, cell.instances))) for cell in cells_of(measurement))
    return ComparedMeasurement(measurement, before, cells)


def cells_of(measurement: VersionMeasurement) -> list[Cell]:
    """Return the combinations of a measurement in the order in which they were measured."""
    return [Cell(**cell) for cell in measurement.cells]


def measurement_operation(version: ModelVersion) -> Operation | None:
    """Return the newest operation that measures the version, or has; None when there is none."""
    rows = Operation.objects.filter(kind="bench_model", subject_type="version", subject_id=version.pk)
    return rows.select_related("project", "actor").order_by("-created_at").first()


def nodes_measurable() -> list[ServingNode]:
    """Return the nodes on which something can be measured now, by name."""
    now = timezone.now()
    nodes = ServingNode.objects.filter(kind=NodeKind.FLOTILLA, state=NodeState.READY)
    return [node for node in nodes.select_related("observation").order_by("name") if is_reachable(node, now)]
