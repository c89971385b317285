"""How versions hang together, rank, and differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import FloatField, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils.translation import gettext as _

from registry.errors import ValidationFailed
from registry.models import WITH_ALIASES, ModelVersion, RegisteredModel, VersionState
from registry.selectors.prepared import Prepared

MAX_ANCESTORS = 20
MAX_CHILDREN = 50
MAX_RANKED = 100
_CHILDREN = Prepared(
    lambda version: (
        ModelVersion.objects.filter(parent_id=version)
        .exclude(state=VersionState.ABANDONED)
        .select_related("model")
        .only("model__slug", "number", "state")
        .order_by("-created_at")[:MAX_CHILDREN]
    )
)
_RANKED_STATES = (VersionState.READY, VersionState.ARCHIVED, VersionState.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a version comes from, nearest first, and what was made from it, newest first; both bounded."""

    ancestors: tuple[ModelVersion, ...]
    children: tuple[ModelVersion, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs; None: that side has none. ``change`` is the second minus the first, of numbers."""

    name: str
    before: Any
    after: Any

    @property
    def change(self) -> float | None:
        """How much more the second has."""
        pair = (self.before, self.after)
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in pair):
            return None
        return float(self.after) - float(self.before)

    @property
    def change_text(self) -> str:
        """The change with its sign and at most six digits; empty where there is none."""
        return f"{self.change:+.6g}" if self.change else ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two versions, by part; parts without a difference are empty. ``files``: SHA-256 by path."""

    before: ModelVersion
    after: ModelVersion
    facts: tuple[Difference, ...]
    metrics: tuple[Difference, ...]
    signature: tuple[Difference, ...]
    files: tuple[Difference, ...]
    same_files: int
    source: tuple[Difference, ...]
    metadata: tuple[Difference, ...]
    checks: tuple[Difference, ...]
    configs: tuple[Difference, ...]


def lineage_of(version: ModelVersion) -> Lineage:
    """Return what it was made from and what was made from it."""
    ancestors: list[ModelVersion] = []
    parent_id = version.parent_id
    while parent_id is not None and len(ancestors) < MAX_ANCESTORS:
        parent = ModelVersion.objects.select_related("model").get(pk=parent_id)
        ancestors.append(parent)
        parent_id = parent.parent_id
    return Lineage(tuple(ancestors), tuple(_CHILDREN(version=version.pk)))


def metric_names(model: RegisteredModel) -> list[str]:
    """Return the metrics that the newest versions of the model have."""
    newest = model.versions.exclude(metrics={}).order_by("-created_at").values_list("metrics", flat=True)
    return sorted({name for metrics in newest[:MAX_RANKED] for name in metrics})


def versions_ranked(model: RegisteredModel, metric: str, *, is_lowest: bool) -> QuerySet[ModelVersion]:
    """Return the numbered versions that have the metric, best first, at most ``MAX_RANKED``."""
    rows = model.versions.filter(state__in=_RANKED_STATES, metrics__has_key=metric)
    value = Cast(KeyTextTransform(metric, "metrics"), FloatField())
    ordered = rows.annotate(metric_value=value).order_by("metric_value" if is_lowest else "-metric_value", "-number")
    return ordered.select_related("author", "model__project").prefetch_related(WITH_ALIASES)[:MAX_RANKED]


def compare(before: ModelVersion, after: ModelVersion) -> Comparison:
    """Return what differs between two versions of one model.

    Raises:
        ValidationFailed: they belong to different models.
    """
    if before.model_id != after.model_id:
        message = _("Versions of different models are not compared.")
        raise ValidationFailed(message, errors=[{"field": "against", "message": message}])
    files = [dict(one.files.values_list("path", "blob__sha256")) for one in (before, after)]
    return Comparison(
        before=before,
        after=after,
        facts=_differences(_facts(before), _facts(after)),
        metrics=_differences(before.metrics, after.metrics, everything=True),
        signature=_differences(_tensors(before), _tensors(after)),
        files=_differences(files[0], files[1]),
        same_files=sum(files[1].get(path) == sha256 for path, sha256 in files[0].items()),
        source=_differences(before.source, after.source),
        metadata=_differences(before.metadata, after.metadata),
        checks=_differences(_checks(before), _checks(after)),
        configs=_differences(_configs(before), _configs(after)),
    )


def _differences(before: dict[str, Any], after: dict[str, Any], *, everything: bool = False) -> tuple[Difference, ...]:
    names = [*before, *(name for name in after if name not in before)]
    found = (Difference(name, before.get(name), after.get(name)) for name in names)
    return tuple(one for one in found if everything or one.before != one.after)


def _facts(version: ModelVersion) -> dict[str, Any]:
    return {
        "state": version.state,
        "format": version.format,
        "manifest_digest": version.manifest_digest,
        "size_bytes": version.size_bytes,
        "author": version.author.username,
    }


def _tensors(version: ModelVersion) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side in ("inputs", "outputs"):
        for tensor in (version.signature or {}).get(side, []):
            found[f"{side}.{tensor.get('name', '')}"] = f"{tensor.get('datatype', '')} {tensor.get('shape', [])}"
    return found


def _checks(version: ModelVersion) -> dict[str, Any]:
    return dict(version.checks.order_by("kind").values_list("kind", "verdict"))


def _configs(version: ModelVersion) -> dict[str, Any]:
    routes = version.routes.select_related("config", "deployment__fleet").order_by("deployment__fleet__slug")
    return {route.deployment.fleet.slug: f"config {route.config.number}" for route in routes}
