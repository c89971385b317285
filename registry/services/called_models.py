"""The models that a model calls: the config of an ensemble names them, and they must be deployed beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from registry.domain.plans import DeploymentSpec, models_called, plan_document
from registry.errors import ValidationFailed
from registry.models import ConfigRevision, Deployment, Fleet, ModelVersion
from serving_node.contract.digests import plan_digest


def called_digests(fleet: Fleet, bodies: Mapping[str, Mapping[str, Any]], own_name: str) -> dict[str, str]:
    """Return the digest of what is deployed under each name that configs call, with what that calls in turn.

    ``bodies``: configs by the field at which a problem is shown. ``own_name`` is the served name of their model.

    Raises:
        ValidationFailed: a name, or the version that is called, is not deployed on the fleet; or it calls itself.
    """
    digests: dict[str, str] = {}
    errors: list[dict[str, str]] = []
    for field, body in bodies.items():
        for name, versions in sorted(models_called(body).items()):
            try:
                digests[name] = _digest(_deployed(fleet, name, versions), (own_name,))
            except ValidationFailed as error:
                errors.append({"field": field, "message": error.message})
    if errors:
        raise ValidationFailed(errors[0]["message"], errors=errors)
    return digests


def _deployed(fleet: Fleet, name: str, versions: Iterable[int]) -> Deployment:
    deployment = Deployment.objects.filter(fleet=fleet, served_name=name).first()
    routes = DeploymentSpec.from_json(deployment.spec).routes if deployment is not None else ()
    if deployment is None or not routes:
        raise ValidationFailed(
            _("It calls “%(name)s”, which is not deployed on fleet %(fleet)s.") % {"name": name, "fleet": fleet.slug}
        )
    missing = sorted(set(versions) - {route.version for route in routes} - {-1})
    if missing:
        raise ValidationFailed(
            _("It calls version %(version)s of “%(name)s”, which is not deployed on fleet %(fleet)s.")
            % {"version": missing[0], "name": name, "fleet": fleet.slug}
        )
    return deployment


def _digest(deployment: Deployment, callers: tuple[str, ...]) -> str:
    """Return the digest of a deployment as an approval would be bound to it, less its checks."""
    if deployment.served_name in callers:
        raise ValidationFailed(_("It calls itself, by way of “%(name)s”.") % {"name": callers[-1]})
    spec = DeploymentSpec.from_json(deployment.spec)
    versions = ModelVersion.objects.in_bulk([route.version_id for route in spec.routes])
    configs = ConfigRevision.objects.in_bulk([route.config_id for route in spec.routes])
    called = {
        name: _digest(_deployed(deployment.fleet, name, numbers), (*callers, deployment.served_name))
        for config in configs.values()
        for name, numbers in models_called(config.body).items()
    }
    document = plan_document(
        spec=spec,
        manifest_digests={str(key): version.manifest_digest for key, version in versions.items()},
        config_digests={str(key): config.digest for key, config in configs.items()},
        check_ids=[],
        fleet_id=str(deployment.fleet_id),
        selector={},
        called=called,
    )
    return plan_digest(document)
