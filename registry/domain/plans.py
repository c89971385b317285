"""What a deployment wants: which units take part and how the traffic is split among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from registry.domain.texts import gettext as _
from registry.errors import ValidationFailed

ROLES = ("live", "canary", "shadow", "held")
TAKES_TRAFFIC = ("live", "canary")


def unit_name(served_name: str, version: int, config_digest: str) -> str:
    """Return the id of one loadable unit: the same name, version and config always give the same id."""
    return f"{served_name}-v{version}-{config_digest[:8]}"


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One version under one config with its part of the traffic.

    Callers name versions and configs by number; services fill in ``version_id`` and ``config_id``.
    ``config`` 0 means the newest revision. ``weight`` and ``sample_percent`` are percentages, 0..100.
    """

    version: int
    config: int = 0
    role: str = "live"
    weight: int = 0
    sample_percent: float = 0.0
    version_id: str = ""
    config_id: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same unit: version and config ids."""
        return self.version_id, self.config_id


@dataclass(frozen=True, slots=True)
class DeploymentSpec:
    """The whole wanted state of one deployment.

    ``weight_range`` bounds the weight of canaries that may be set later without a new approval.
    ``sticky`` names the header or parameter that pins a caller to one unit. ``served_name`` is the name on the nodes
    (empty: the model's slug); it is fixed by the first deployment.
    """

    routes: tuple[RouteSpec, ...] = ()
    sticky: str = ""
    weight_range: tuple[int, int] = (0, 100)
    served_name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the document kept in ``Deployment.spec``."""
        return {
            "routes": [
                {
                    "version_id": route.version_id,
                    "version": route.version,
                    "config_id": route.config_id,
                    "config": route.config,
                    "role": route.role,
                    "weight": route.weight,
                    "sample_percent": route.sample_percent,
                }
                for route in self.routes
            ],
            "sticky": self.sticky,
            "weight_range": list(self.weight_range),
            "served_name": self.served_name,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DeploymentSpec:
        """Read a document; an empty one gives an empty spec.

        Raises:
            ValidationFailed: unknown fields, wrong types or weights that make no sense; ``errors`` names the fields.
        """
        return _read_spec(document)

    def with_weights(self, weights: Mapping[int, int]) -> DeploymentSpec:
        """Return the same routes with other weights (by version number); routes not named keep theirs."""
        return replace(
            self,
            routes=tuple(
                replace(route, weight=weights.get(route.version, route.weight))
                if route.role in TAKES_TRAFFIC
                else route
                for route in self.routes
            ),
        )

    def keys(self) -> frozenset[tuple[str, str, str]]:
        """Return (version id, config id, role group) of each route; live and canary are one group."""
        return frozenset(
            (*route.key, "traffic" if route.role in TAKES_TRAFFIC else route.role) for route in self.routes
        )


def spec_problems(spec: DeploymentSpec) -> list[dict[str, str]]:
    """Return everything that is wrong with the routes, as ``{"field", "message"}``; an empty list when nothing is."""
    problems: list[dict[str, str]] = []

    def say(field: str, message: str) -> None:
        problems.append({"field": field, "message": message})

    low, high = spec.weight_range
    if not 0 <= low <= high <= 100:
        say("weight_range", _("The range of weights must be two numbers from 0 to 100, the smaller first."))
    seen: set[tuple[int, int]] = set()
    for index, route in enumerate(spec.routes):
        field = f"routes[{index}]"
        if (route.version, route.config) in seen:
            say(
                field,
                _("Version %(version)s with config %(config)s is listed twice.")
                % {"version": route.version, "config": route.config},
            )
        seen.add((route.version, route.config))
        if route.role not in ROLES:
            say(f"{field}.role", _("The role must be one of %(roles)s.") % {"roles": ", ".join(ROLES)})
        elif route.role not in TAKES_TRAFFIC and route.weight != 0:
            say(f"{field}.weight", _("A %(role)s route takes no traffic; its weight must be 0.") % {"role": route.role})
        if not 0 <= route.weight <= 100:
            say(f"{field}.weight", _("A weight is a percentage from 0 to 100."))
        if not 0 <= route.sample_percent <= 100:
            say(f"{field}.sample_percent", _("The sample is a percentage from 0 to 100."))
        if route.role == "canary" and not low <= route.weight <= high:
            say(
                f"{field}.weight",
                _("The weight of a canary must lie in the allowed range %(low)s to %(high)s.")
                % {"low": low, "high": high},
            )
    live = [route for route in spec.routes if route.role == "live"]
    total = sum(route.weight for route in spec.routes if route.role in TAKES_TRAFFIC)
    if live and total != 100:
        say(
            "routes",
            _("The weights of live and canary routes must sum to 100; they sum to %(total)s.") % {"total": total},
        )
    if not live and total:
        say("routes", _("A canary needs a live route beside it."))
    return problems


def inside_range(applied: DeploymentSpec, wanted: DeploymentSpec) -> bool:
    """Say whether ``wanted`` only moves weights that ``applied`` already allows to move.

    The units, their roles and what part of the requests shadows see must be the same, and every canary's weight must
    lie in the applied range.
    """
    if not applied.routes or applied.keys() != wanted.keys() or applied.sticky != wanted.sticky:
        return False
    if applied.weight_range != wanted.weight_range:
        return False
    roles = {route.key: (route.role, route.sample_percent) for route in applied.routes}
    if any(roles[route.key] != (route.role, route.sample_percent) for route in wanted.routes):
        return False
    low, high = applied.weight_range
    return all(low <= route.weight <= high for route in wanted.routes if route.role == "canary")


def is_stable(spec: DeploymentSpec) -> bool:
    """Say whether one unit takes all the traffic: a state that people mean when they say "roll back"."""
    return sum(route.role in TAKES_TRAFFIC for route in spec.routes) == 1


@dataclass(frozen=True, slots=True)
class Applied:
    """One spec that was put in force, oldest first in a history. ``kind``: deploy, traffic or rollback."""

    kind: str
    spec_from: DeploymentSpec
    spec_to: DeploymentSpec


def rollback_target(history: Sequence[Applied]) -> DeploymentSpec | None:
    """Return the spec that a roll-back brings back, None when there is none.

    It is the newest earlier spec in which one unit takes all the traffic, else the newest earlier one. Moves of
    weights do not count as a spec of their own, and what a roll-back undid is forgotten: rolling back twice goes back
    two steps instead of forth.
    """
    stack: list[DeploymentSpec] = []
    for step in history:
        if not stack and step.spec_from.routes:
            stack.append(step.spec_from)
        if step.kind == "rollback":
            while stack and stack[-1].keys() != step.spec_to.keys():
                stack.pop()
        if stack and stack[-1].keys() == step.spec_to.keys():
            stack[-1] = step.spec_to
        else:
            stack.append(step.spec_to)
    earlier = [spec for spec in stack[:-1] if spec.routes]
    stable = [spec for spec in earlier if is_stable(spec)]
    if stable:
        return stable[-1]
    return earlier[-1] if earlier else None


def plan_document(
    *,
    spec: DeploymentSpec,
    manifest_digests: Mapping[str, str],
    config_digests: Mapping[str, str],
    check_ids: Iterable[str],
    fleet_id: str,
    selector: Mapping[str, str],
    called: Mapping[str, str] | None = None,
    code: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return the document that an approval is bound to; its digest changes when anything that was approved changes.

    The weights of live and canary routes are left out: what is approved is the allowed range of them.
    ``manifest_digests`` and ``config_digests`` map version and config ids to digests; ``called`` maps the names of
    models that it calls to the digests of what is deployed under them. ``code`` is what the approval lets nodes run.
    """
    routes = [
        {
            "version": manifest_digests[route.version_id],
            "config": config_digests[route.config_id],
            "role": route.role,
            "sample_percent": str(route.sample_percent),
        }
        for route in spec.routes
    ]
    return {
        "versions": sorted(set(manifest_digests.values())),
        "configs": sorted(set(config_digests.values())),
        "checks": sorted(check_ids),
        "fleet": fleet_id,
        "selector": dict(sorted(selector.items())),
        "strategy": {
            "routes": sorted(routes, key=lambda route: (route["version"], route["config"])),
            "weight_range": list(spec.weight_range),
            "sticky": spec.sticky,
            "served_name": spec.served_name,
        },
        **({"called": dict(sorted(called.items()))} if called else {}),
        **({"code": [dict(part) for part in code]} if code else {}),
    }


def models_called(config: Mapping[str, Any]) -> dict[str, set[int]]:
    """Return the names of the models that a config's ensemble calls, each with the versions; -1 is the newest."""
    called: dict[str, set[int]] = {}
    for step in (config.get("ensemble_scheduling") or {}).get("step", []):
        called.setdefault(step.get("model_name", ""), set()).add(step.get("model_version", 0))
    return called


def calls_itself(config: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """Return the steps of the ensemble of model ``name`` that call the model itself, as ``{"field", "message"}``."""
    steps = (config.get("ensemble_scheduling") or {}).get("step", [])
    message = _("The ensemble calls itself: %(name)s.") % {"name": name}
    return [
        {"field": f"ensemble_scheduling.step[{index}].model_name", "message": message}
        for index, step in enumerate(steps)
        if step.get("model_name") == name
    ]


_SPEC_FIELDS = {"routes", "sticky", "weight_range", "served_name"}
_ROUTE_FIELDS = {"version", "config", "role", "weight", "sample_percent", "version_id", "config_id"}


def _read_spec(document: Mapping[str, Any]) -> DeploymentSpec:
    if not isinstance(document, Mapping):
        raise _bad("", _("The spec must be an object."))
    for name in document:
        if name not in _SPEC_FIELDS:
            raise _bad(str(name), _("Unknown field %(field)s."))
    routes = document.get("routes", [])
    if not isinstance(routes, list):
        raise _bad("routes", _("%(field)s must be a list."))
    bounds = document.get("weight_range", [0, 100])
    if not (isinstance(bounds, list | tuple) and len(bounds) == 2 and all(_is_int(bound) for bound in bounds)):
        raise _bad("weight_range", _("%(field)s must be a list of two whole numbers."))
    spec = DeploymentSpec(
        routes=tuple(_read_route(route, f"routes[{index}]") for index, route in enumerate(routes)),
        sticky=_text(document, "sticky", ""),
        weight_range=(bounds[0], bounds[1]),
        served_name=_text(document, "served_name", ""),
    )
    problems = spec_problems(spec)
    if problems:
        raise ValidationFailed(problems[0]["message"], errors=problems)
    return spec


def _read_route(document: Any, field: str) -> RouteSpec:
    if not isinstance(document, Mapping):
        raise _bad(field, _("%(field)s must be an object."))
    for name in document:
        if name not in _ROUTE_FIELDS:
            raise _bad(f"{field}.{name}", _("Unknown field %(field)s."))
    version, config, weight = document.get("version", 0), document.get("config", 0), document.get("weight", 0)
    for name, value in (("version", version), ("config", config), ("weight", weight)):
        if not _is_int(value) or value < 0:
            raise _bad(f"{field}.{name}", _("%(field)s must be a whole number, not negative."))
    if version == 0:
        raise _bad(f"{field}.version", _("%(field)s is missing."))
    percent = document.get("sample_percent", 0.0)
    if isinstance(percent, bool) or not isinstance(percent, int | float):
        raise _bad(f"{field}.sample_percent", _("%(field)s must be a number."))
    return RouteSpec(
        version=version,
        config=config,
        role=_text(document, "role", "live", prefix=f"{field}."),
        weight=weight,
        sample_percent=float(percent),
        version_id=_text(document, "version_id", "", prefix=f"{field}."),
        config_id=_text(document, "config_id", "", prefix=f"{field}."),
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(document: Mapping[str, Any], name: str, default: str, prefix: str = "") -> str:
    value = document.get(name, default)
    if not isinstance(value, str):
        raise _bad(f"{prefix}{name}", _("%(field)s must be a text."))
    return value


def _bad(field: str, template: str) -> ValidationFailed:
    message = template % {"field": field}
    return ValidationFailed(message, errors=[{"field": field, "message": message}])
