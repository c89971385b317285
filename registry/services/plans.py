"""What a change of a deployment would do, before anybody does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from registry.domain.actors import Actor
from registry.domain.checks import bound_result
from registry.domain.plans import DeploymentSpec, RouteSpec, inside_range, plan_document, spec_problems, unit_name
from registry.domain.protection import Verdict
from registry.errors import Conflict, ValidationFailed
from registry.models import (
    Check,
    ConfigRevision,
    Deployment,
    Fleet,
    ModelVersion,
    RegisteredModel,
    ServingNode,
    VersionState,
)
from registry.selectors import clock
from registry.selectors.code import PlannedCode, code_document, planned_code
from registry.selectors.fleet import is_reachable, nodes_of, observation_of
from registry.selectors.protection import plan_verdict
from registry.services.called_models import called_digests
from registry.services.code import code_problem
from registry.services.fields import require_served_name
from registry.services.permissions import require
from serving_node.contract.digests import plan_digest
from serving_node.contract.model_config import check_signature, parse_json, problems
from serving_node.contract.signature import ModelSignature


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What one node would do: unit ids to load, to keep and to unload; ``bytes_to_fetch`` of content new to it."""

    node_id: str
    name: str
    is_reachable: bool
    loads: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    unloads: tuple[str, ...] = ()
    bytes_to_fetch: int = 0


@dataclass(frozen=True, slots=True)
class RouteChange:
    """How the traffic of one version changes, in percent; None: it is not there on that side."""

    version: int
    config: int
    role: str
    weight_before: int | None
    weight_after: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole consequence of a spec. ``approval_reason`` says why approval is (or is not) needed.

    ``protection`` is how the environment's rules stand now; it is empty for what they do not hold up.

    ``plan`` is the document whose digest an approval is bound to; ``spec`` has all ids filled in.
    """

    model: str
    fleet: str
    environment: str
    served_name: str
    spec: DeploymentSpec
    plan: dict[str, Any]
    plan_digest: str
    needs_approval: bool
    approval_reason: str
    required_approvals: int
    protection: Verdict = field(default_factory=Verdict)
    nodes: tuple[NodeChange, ...] = ()
    routes: tuple[RouteChange, ...] = ()
    warnings: tuple[str, ...] = ()
    is_noop: bool = False

    @property
    def is_held(self) -> bool:
        """Whether it cannot start at once although nobody has to approve it."""
        return not self.needs_approval and not self.protection.is_allowed

    def to_json(self) -> dict[str, Any]:
        """Return the plan for API answers."""
        return {
            "model": self.model,
            "fleet": self.fleet,
            "environment": self.environment,
            "served_name": self.served_name,
            "spec": self.spec.to_json(),
            "plan": self.plan,
            "plan_digest": self.plan_digest,
            "needs_approval": self.needs_approval,
            "approval_reason": self.approval_reason,
            "required_approvals": self.required_approvals,
            "protection": [finding.to_json() for finding in self.protection.findings],
            "is_held": self.is_held,
            "nodes": [
                {
                    "node": change.node_id,
                    "name": change.name,
                    "is_reachable": change.is_reachable,
                    "loads": list(change.loads),
                    "keeps": list(change.keeps),
                    "unloads": list(change.unloads),
                    "bytes_to_fetch": change.bytes_to_fetch,
                }
                for change in self.nodes
            ],
            "routes": [
                {
                    "version": change.version,
                    "config": change.config,
                    "role": change.role,
                    "weight_before": change.weight_before,
                    "weight_after": change.weight_after,
                }
                for change in self.routes
            ],
            "warnings": list(self.warnings),
            "is_noop": self.is_noop,
        }


@dataclass(frozen=True, slots=True)
class ResolvedSpec:
    """A spec with ids and the rows that it names, by id."""

    spec: DeploymentSpec
    versions: dict[str, ModelVersion]
    configs: dict[str, ConfigRevision]

    def bodies(self) -> dict[str, dict[str, Any]]:
        """Return the config of each route, by the field that names it."""
        return {
            f"routes[{index}].config": self.configs[route.config_id].body
            for index, route in enumerate(self.spec.routes)
        }

    def pairs(self) -> list[tuple[ModelVersion, ConfigRevision]]:
        """Return version and config of each route."""
        return [(self.versions[route.version_id], self.configs[route.config_id]) for route in self.spec.routes]

    def unit(self, route: RouteSpec) -> str:
        """Return the unit id of a route."""
        return unit_name(self.spec.served_name, route.version, self.configs[route.config_id].digest)


def deployment_plan(
    *, model: RegisteredModel, fleet: Fleet, spec: DeploymentSpec, actor: Actor, applied_before: bool = False
) -> Plan:
    """Work out what ``spec`` would change; stores nothing.

    ``applied_before`` says that this very state was in force in the environment before (a roll-back).

    Raises:
        ValidationFailed: routes make no sense, name unknown or not deployable versions, or a config that
            contradicts a version; ``errors`` names the fields.
        Conflict: the served name is used by another model on the fleet.
    """
    require(actor, "project.view", model)
    deployment = Deployment.objects.filter(model=model, fleet=fleet).first()
    if deployment is None and not spec.served_name:
        spec = replace(spec, served_name=_free_name(model, fleet))
    resolved = spec_resolve(model=model, spec=spec, deployment=deployment)
    _require_free_name(model, fleet, resolved.spec.served_name)
    applied = DeploymentSpec.from_json(deployment.spec) if deployment is not None else DeploymentSpec()
    document = plan_of(model=model, fleet=fleet, resolved=resolved)
    free = _goes_ahead(applied, resolved.spec, applied_before)
    new_code = [one for one in planned_code(model.project, resolved.pairs()) if not one.is_permitted]
    needs, reason = _approval(fleet, free, new_code)
    nodes = list(nodes_of(fleet))
    return Plan(
        model=model.slug,
        fleet=fleet.slug,
        environment=fleet.environment.slug,
        served_name=resolved.spec.served_name,
        spec=resolved.spec,
        plan=document,
        plan_digest=plan_digest(document),
        needs_approval=needs,
        approval_reason=reason,
        required_approvals=max(1, fleet.environment.required_approvals) if needs else 0,
        protection=Verdict()
        if free
        else plan_verdict(fleet.environment, resolved.versions.values(), clock.database_now()),
        nodes=tuple(_node_change(node, deployment, resolved) for node in nodes),
        routes=_route_changes(applied, resolved.spec),
        warnings=tuple(_warnings(nodes, model, resolved)),
        is_noop=applied == resolved.spec,
    )


def plan_of(*, model: RegisteredModel, fleet: Fleet, resolved: ResolvedSpec) -> dict[str, Any]:
    """Return the document that an approval is bound to, as things are now.

    Raises:
        ValidationFailed: a model that it calls is not deployed on the fleet.
    """
    checks = Check.objects.filter(version__in=list(resolved.versions.values())).values_list("kind", "id", "verdict")
    bound = (bound_result(kind, str(check_id), verdict) for kind, check_id, verdict in checks)
    return plan_document(
        spec=resolved.spec,
        manifest_digests={key: version.manifest_digest for key, version in resolved.versions.items()},
        config_digests={key: config.digest for key, config in resolved.configs.items()},
        check_ids=[result for result in bound if result is not None],
        fleet_id=str(fleet.id),
        selector=fleet.selector,
        called=called_digests(fleet, resolved.bodies(), resolved.spec.served_name),
        code=code_document(planned_code(model.project, resolved.pairs())),
    )


def spec_resolve(*, model: RegisteredModel, spec: DeploymentSpec, deployment: Deployment | None) -> ResolvedSpec:
    """Fill in ids and the served name, and check that everything named may be deployed together.

    Raises:
        ValidationFailed: with one entry in ``errors`` per problem.
    """
    errors = spec_problems(spec)
    # What runs already may go on, whatever the project says about code by now.
    deployed = {route.key for route in DeploymentSpec.from_json(deployment.spec).routes} if deployment else set()
    served_name = _served_name(model, spec, deployment)
    routes: list[RouteSpec] = []
    versions: dict[str, ModelVersion] = {}
    configs: dict[str, ConfigRevision] = {}
    for index, route in enumerate(spec.routes):
        field = f"routes[{index}]"
        version = _version(model, route, field, errors)
        config = _config(model, route, field, errors)
        if version is None or config is None:
            continue
        errors += _contradictions(version, config, f"{field}.config")
        if (str(version.id), str(config.id)) not in deployed:
            problem = code_problem(version, config)
            errors += [{"field": f"{field}.version", "message": problem}] if problem else []
        versions[str(version.id)], configs[str(config.id)] = version, config
        routes.append(
            replace(
                route,
                version=version.number or 0,
                version_id=str(version.id),
                config=config.number,
                config_id=str(config.id),
            )
        )
    if len({route.key for route in routes}) < len(routes):
        errors.append({"field": "routes", "message": _("The same version with the same config is listed twice.")})
    if errors:
        raise ValidationFailed(errors[0]["message"], errors=errors)
    return ResolvedSpec(replace(spec, routes=tuple(routes), served_name=served_name), versions, configs)


def _served_name(model: RegisteredModel, spec: DeploymentSpec, deployment: Deployment | None) -> str:
    if deployment is None:
        return require_served_name(spec.served_name or model.slug)
    if spec.served_name not in ("", deployment.served_name):
        message = _("This deployment serves as “%(name)s”; a served name does not change.") % {
            "name": deployment.served_name
        }
        raise ValidationFailed(message, errors=[{"field": "served_name", "message": message}])
    return deployment.served_name


def _version(model: RegisteredModel, route: RouteSpec, field: str, errors: list[dict[str, str]]) -> ModelVersion | None:
    version = ModelVersion.objects.filter(model=model, number=route.version).select_related("model__project").first()
    message = ""
    if version is None or route.version_id not in ("", str(version.id)):
        message = _("“%(model)s” has no version %(number)s.") % {"model": model.slug, "number": route.version}
    elif version.state != VersionState.READY:
        message = _("Version %(number)s is %(state)s; only ready versions can be deployed.") % {
            "number": route.version,
            "state": version.state,
        }
    if message:
        errors.append({"field": f"{field}.version", "message": message})
        return None
    return version


def _config(
    model: RegisteredModel, route: RouteSpec, field: str, errors: list[dict[str, str]]
) -> ConfigRevision | None:
    revisions = ConfigRevision.objects.filter(model=model).order_by("-number")
    config = revisions.filter(number=route.config).first() if route.config else revisions.first()
    if config is None or route.config_id not in ("", str(config.id)):
        message = _("“%(model)s” has no config %(number)s.") % {"model": model.slug, "number": route.config or ""}
        errors.append({"field": f"{field}.config", "message": message})
        return None
    return config


def _contradictions(version: ModelVersion, config: ConfigRevision, field: str) -> list[dict[str, str]]:
    """Return where the config and the version's own inputs and outputs disagree."""
    parsed = parse_json(config.body)
    found = list(problems(parsed))
    if not found and version.signature is not None:
        found = check_signature(parsed, ModelSignature.from_json(version.signature))
    return [{"field": f"{field}.{error.field}" if error.field else field, "message": error.message} for error in found]


def _free_name(model: RegisteredModel, fleet: Fleet) -> str:
    """Return the name that a first deployment gets by itself: the model's, with the fleet's where that is taken."""
    return model.slug if _holder(model, fleet, model.slug) is None else f"{model.slug}-{fleet.slug}"


def _holder(model: RegisteredModel, fleet: Fleet, served_name: str) -> Deployment | None:
    """Return another deployment that serves the name on the fleet, or on a node that both fleets share.

    Two deployments under one name on one node would mix their traffic: what needs no approval in one environment
    would change what needs it in the other.
    """
    others = Deployment.objects.filter(served_name=served_name).exclude(model=model, fleet=fleet)
    for other in others.select_related("fleet"):
        if other.fleet_id == fleet.id or nodes_of(fleet).filter(labels__contains=other.fleet.selector).exists():
            return other
    return None


def _require_free_name(model: RegisteredModel, fleet: Fleet, served_name: str) -> None:
    holder = _holder(model, fleet, served_name)
    if holder is not None:
        raise Conflict(
            _("The name “%(name)s” is served on fleet %(fleet)s by another deployment; choose another served name.")
            % {"name": served_name, "fleet": holder.fleet.slug},
            errors=[{"field": "served_name", "message": _("This name is taken.")}],
        )


def _goes_ahead(applied: DeploymentSpec, wanted: DeploymentSpec, applied_before: bool) -> str:
    """Return why no rule of the environment holds the change up; empty when they all count."""
    if applied == wanted:
        return _("Nothing changes.")
    if inside_range(applied, wanted):
        return _("The weights stay in the range that was approved.")
    if applied_before:
        return _("This state was in force here before.")
    return ""


def _approval(fleet: Fleet, free: str, new_code: Sequence[PlannedCode]) -> tuple[bool, str]:
    environment = fleet.environment
    if new_code:
        names = ", ".join(dict.fromkeys(part.path for one in new_code for part in one.parts))
        return True, _("Nodes run this code only once somebody has approved it: %(names)s.") % {"names": names}
    if not environment.requires_approval:
        return False, _("Environment %(name)s needs no approval.") % {"name": environment.slug}
    if free:
        return False, free
    count = max(1, environment.required_approvals)
    return True, ngettext(
        "Environment %(name)s needs %(count)d approval.", "Environment %(name)s needs %(count)d approvals.", count
    ) % {"name": environment.slug, "count": count}


def _node_change(node: ServingNode, deployment: Deployment | None, resolved: ResolvedSpec) -> NodeChange:

    seen = observation_of(node)
    name = deployment.served_name if deployment is not None else resolved.spec.served_name
    present = {
        str(unit["unit"])
        for unit in (seen.units if seen is not None else [])
        if unit.get("name") == name and unit.get("state") == "ready"
    }
    wanted = {resolved.unit(route): route for route in resolved.spec.routes}
    loads = [unit for unit in wanted if unit not in present]
    held = {
        int(unit.get("version", 0)) for unit in (seen.units if seen is not None else []) if unit.get("name") == name
    }
    missing = {wanted[unit].version_id for unit in loads if wanted[unit].version not in held}
    return NodeChange(
        node_id=str(node.id),
        name=node.name,
        is_reachable=is_reachable(node, timezone.now()),
        loads=tuple(sorted(loads)),
        keeps=tuple(sorted(unit for unit in wanted if unit in present)),
        unloads=tuple(sorted(present - wanted.keys())),
        bytes_to_fetch=sum(resolved.versions[version_id].size_bytes for version_id in missing),
    )


def _route_changes(before: DeploymentSpec, after: DeploymentSpec) -> tuple[RouteChange, ...]:
    old = {route.key: route for route in before.routes}
    new = {route.key: route for route in after.routes}
    changes = []
    for key in [*new, *(key for key in old if key not in new)]:
        route = new.get(key) or old[key]
        changes.append(
            RouteChange(
                version=route.version,
                config=route.config,
                role=route.role,
                weight_before=old[key].weight if key in old else None,
                weight_after=new[key].weight if key in new else None,
            )
        )
    return tuple(changes)


def _warnings(nodes: Sequence[ServingNode], model: RegisteredModel, resolved: ResolvedSpec) -> list[str]:
    warnings = []
    if resolved.spec.served_name != model.slug:
        warnings.append(_("It is served under the name “%(name)s”.") % {"name": resolved.spec.served_name})
    if not nodes:
        warnings.append(_("No node belongs to this fleet yet; the deployment waits for one."))
    silent = [node.name for node in nodes if not is_reachable(node, timezone.now())]
    if nodes and silent:
        warnings.append(_("These nodes do not answer now: %(names)s.") % {"names": ", ".join(silent)})
    if not resolved.spec.routes:
        warnings.append(_("Nothing will be served any more."))
    for version in resolved.versions.values():
        if version.state_reason:
            warnings.append(_("Version %(number)s: %(why)s") % {"number": version.number, "why": version.state_reason})
    return warnings
