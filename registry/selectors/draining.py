"""What taking a node out of service would stop or move, said before it is done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from registry.domain.actors import Actor
from registry.models import Deployment, ServingNode
from registry.selectors.deployments import deployments_visible_to
from registry.selectors.fleet import fleets_of, is_reachable, nodes_of, observation_of
from registry.selectors.heat import model_heat


@dataclass(frozen=True, slots=True)
class DrainEffect:
    """A deployment that the node answers for now: its requests there in 1/s, and how many other nodes answer too."""

    deployment: Deployment
    request_rate: float
    others: int


@dataclass(frozen=True, slots=True)
class DrainEffects:
    """Those of projects that the viewer sees, the ones that would stop first; ``hidden`` counts the others."""

    seen: tuple[DrainEffect, ...]
    hidden: int


def drain_effects(actor: Actor, node: ServingNode, now: datetime) -> DrainEffects:
    """Return what answers on the node now, in a fixed number of queries."""
    answering = _answering(node)
    if not answering:
        return DrainEffects((), 0)
    places = fleets_of(node)
    rows = Deployment.objects.filter(fleet__in=places, served_name__in=answering).order_by("served_name")
    concerned = list(rows.select_related("fleet", "project"))
    visible = set(
        deployments_visible_to(actor).filter(pk__in=[one.pk for one in concerned]).values_list("pk", flat=True)
    )
    neighbours = [
        one for one in nodes_of(*places) if one.pk != node.pk and one.state == "ready" and is_reachable(one, now)
    ]
    rates = model_heat("request_rate", [node.pk], answering, now)
    seen = [
        DrainEffect(
            one,
            rates.get((node.pk, one.served_name)) or 0.0,
            sum(1 for other in neighbours if one.served_name in _answering(other)),
        )
        for one in concerned
        if one.pk in visible
    ]
    return DrainEffects(tuple(sorted(seen, key=lambda effect: effect.others > 0)), len(concerned) - len(seen))


def _answering(node: ServingNode) -> set[str]:
    """Return the served names that take a share of the traffic on the node."""
    seen = observation_of(node)
    units = seen.units if seen is not None else []
    return {str(unit.get("name", "")) for unit in units if unit.get("routed_weight")}
