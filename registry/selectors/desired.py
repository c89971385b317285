"""The whole wanted state of one node, from all deployments whose fleet includes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from registry.models import ModelVersion, NodeState, Route, RouteRole, ScratchUnit, ServingNode, VersionSigner
from registry.selectors.fleet import fleets_of, placed_on
from serving_node.contract import states
from serving_node.contract.control import Desired, DesiredModel, Drain, FileRef, Unit
from serving_node.contract.control import Route as WantedRoute
from serving_node.contract.digests import config_digest
from serving_node.contract.model_config import parse_json, to_json
from serving_node.contract.signing import Signer

_DRAINS = (NodeState.DRAINING, NodeState.DRAINED)


def wanted_routes(node: ServingNode) -> list[Route]:
    """Return the routes of every deployment that the node takes part in, by served name.

    A retired or drained node takes part in none; a cordoned one only in deployments made before.
    """
    if not placed_on(node):
        return []
    routes = Route.objects.filter(deployment__fleet__in=fleets_of(node))
    if not node.is_schedulable and node.cordoned_at is not None:
        routes = routes.filter(deployment__created_at__lt=node.cordoned_at)
    return list(
        routes.select_related("deployment", "version__signed_by", "config")
        .prefetch_related("version__files__blob")
        .order_by("deployment__served_name", "created_at", "unit")
    )


def wanted_scratches(node: ServingNode) -> list[ScratchUnit]:
    """Return the copies that the node holds to be measured; none once it takes part in nothing."""
    if not placed_on(node):
        return []
    scratches = ScratchUnit.objects.filter(node=node).select_related("version__signed_by")
    return list(scratches.prefetch_related("version__files__blob").order_by("created_at"))


def desired_state(node: ServingNode) -> Desired:
    """Return the message for the node: epoch, generation, models with routes, units and files, and drain.

    Concurrency: whoever changes the content raises the generation in the same transaction, which locks the node's
    row. Holding that lock while reading makes number and content belong together.
    """
    by_name: dict[str, list[Route]] = {}
    with transaction.atomic():
        node = ServingNode.objects.select_for_update(no_key=True).get(pk=node.pk)
        for route in wanted_routes(node):
            by_name.setdefault(route.deployment.served_name, []).append(route)
        scratches = [_scratch(scratch) for scratch in wanted_scratches(node)]
    return Desired(
        epoch=node.epoch,
        generation=node.desired_generation,
        models=(*(_model(name, routes) for name, routes in by_name.items()), *scratches),
        drain=Drain(float(node.drain_deadline_seconds)) if node.state in _DRAINS else None,
    )


def _model(name: str, routes: Sequence[Route]) -> DesiredModel:
    return DesiredModel(
        name=name,
        sticky=str(routes[0].deployment.spec.get("sticky", "")),
        routes=tuple(
            WantedRoute(
                unit=route.unit,
                weight=route.weight,
                role=states.RouteRole(route.role),
                sample_percent=route.sample_percent,
            )
            for route in routes
        ),
        units=tuple(_unit(name, route) for route in routes),
    )


def _unit(name: str, route: Route) -> Unit:
    body, digest = _config_for(name, route.config.body, route.config.digest)
    return Unit(
        unit=route.unit,
        version=route.version.number or 0,
        config_digest=digest,
        config=body,
        manifest_digest=route.version.manifest_digest,
        files=_files(route.version),
        keep_warm=route.role == RouteRole.HELD,
        code_permitted=route.version.code_permitted_at is not None,
        signer=_signer(route.version),
    )


def _scratch(scratch: ScratchUnit) -> DesiredModel:
    """Return a copy as a model without routes: kept loaded, and reached by nobody."""
    unit = Unit(
        unit=scratch.unit,
        version=scratch.version.number or 0,
        config_digest=scratch.config_digest,
        config=scratch.config_body,
        manifest_digest=scratch.version.manifest_digest,
        files=_files(scratch.version),
        keep_warm=True,
        code_permitted=scratch.version.code_permitted_at is not None,
        signer=_signer(scratch.version),
    )
    return DesiredModel(name=scratch.served_name, routes=(), units=(unit,))


def _config_for(name: str, body: dict[str, Any], digest: str) -> tuple[dict[str, Any], str]:
    """Return the config under the name that the node serves; configs are written under the model's slug."""
    if body.get("name") == name:
        return body, digest
    config = parse_json(body)
    config.name = name
    return to_json(config, defaults=False), config_digest(config)


def _signer(version: ModelVersion) -> Signer | None:
    try:
        return Signer.from_json(version.signed_by.signer)
    except VersionSigner.DoesNotExist:
        return None


def _files(version: ModelVersion) -> tuple[FileRef, ...]:
    files = sorted(version.files.all(), key=lambda file: file.path)
    return tuple(FileRef(path=file.path, sha256=file.blob.sha256, size=file.blob.size) for file in files)
