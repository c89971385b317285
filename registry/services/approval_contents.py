"""What an approval request would do: its versions with signers and checks, its configs as differences, its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from registry.models import Check, ConfigRevision, ModelVersion, ServingNode
from registry.selectors.approvals import ApprovalDetail
from registry.selectors.config_effects import request_rates
from registry.selectors.fleet import nodes_of
from registry.services.configs import FieldChange, config_diff

_SIGNING = "signature_verification"


@dataclass(frozen=True, slots=True)
class PlannedVersion:
    """A version of the plan. ``signing`` is the check that says who signed it, None where none was made."""

    version: ModelVersion
    signing: Check | None
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class PlannedConfig:
    """A config of the plan that does not serve there; ``before`` is the one it replaces, None where nothing serves."""

    config: ConfigRevision
    before: ConfigRevision | None
    changes: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class ApprovalContents:
    """Everything a reviewer compares. Routes are as in ``Deployment.spec``: before the change, and after it.

    ``nodes`` are those of the fleet now; ``request_rate`` is what they answer for the model, 1/s over five minutes.
    """

    versions: tuple[PlannedVersion, ...]
    configs: tuple[PlannedConfig, ...]
    routes_before: tuple[Mapping[str, Any], ...]
    routes_after: tuple[Mapping[str, Any], ...]
    nodes: tuple[ServingNode, ...]
    request_rate: float


def approval_contents(detail: ApprovalDetail, now: datetime) -> ApprovalContents:
    """Return what the request would do, in a fixed number of queries."""
    deployment = detail.approval.deployment
    before, after = _routes(detail.spec_before), _routes(detail.approval.spec)
    nodes = tuple(nodes_of(deployment.fleet))
    rates = request_rates({deployment.served_name}, now)
    return ApprovalContents(
        versions=tuple(_version(version, detail.checks) for version in detail.versions),
        configs=_configs(before, detail.configs),
        routes_before=before,
        routes_after=after,
        nodes=nodes,
        request_rate=sum(rates.get((deployment.served_name, node.pk), 0.0) for node in nodes),
    )


def _version(version: ModelVersion, checks: tuple[Check, ...]) -> PlannedVersion:
    own = tuple(check for check in checks if check.version_id == version.pk)
    return PlannedVersion(version, next((check for check in own if check.kind == _SIGNING), None), own)


def _configs(routes: tuple[Mapping[str, Any], ...], configs: tuple[ConfigRevision, ...]) -> tuple[PlannedConfig, ...]:
    live = [str(route["config_id"]) for route in routes if route.get("role") == "live" and route.get("config_id")]
    before = ConfigRevision.objects.filter(pk__in=live).order_by("number").first() if live else None
    return tuple(
        PlannedConfig(config, before, tuple(config_diff(before, config)) if before else ())
        for config in configs
        if before is None or before.pk != config.pk
    )


def _routes(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    routes = spec.get("routes", [])
    return tuple(route for route in routes if isinstance(route, dict)) if isinstance(routes, list) else ()
