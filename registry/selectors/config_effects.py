"""What another config of a model would do to what runs, if it were deployed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Sum

from registry.domain.rollups import bucket_of
from registry.models import Deployment, RegisteredModel, Resolution, Sample, ServingNode
from registry.selectors.fleet import belongs, nodes_of
from serving_node.contract.model_config import fixed_part, normalise, parse_json

_MOST = 100
_WINDOW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ConfigEffect:
    """What a config would do to a deployment. ``configs``: the revisions that serve there now.

    ``is_same``: that very config serves already. Else every node loads it beside what serves, and then switches.
    ``only_instances``: a node with a repository of its own would change it in place, without loading it again.
    ``request_rate`` is of the last five minutes, 1/s, over all nodes of the fleet.
    """

    deployment: Deployment
    configs: tuple[int, ...]
    nodes: tuple[str, ...]
    is_same: bool
    only_instances: bool
    request_rate: float


def config_effects(
    model: RegisteredModel, body: Mapping[str, Any], digest: str, now: datetime
) -> tuple[ConfigEffect, ...]:
    """Return the effect on each deployment that serves the model, busiest first, in a fixed number of queries."""
    deployments = list(
        Deployment.objects.filter(model=model, routes__isnull=False)
        .distinct()
        .select_related("fleet__environment", "project")
        .prefetch_related("routes__config")
        .order_by("served_name", "fleet__slug")[:_MOST]
    )
    if not deployments:
        return ()
    nodes = list(nodes_of(*{one.fleet_id: one.fleet for one in deployments}.values()))
    rates = request_rates({one.served_name for one in deployments}, now)
    wanted = _fixed(body)
    found = [_effect(one, nodes, rates, wanted, digest) for one in deployments]
    return tuple(sorted(found, key=lambda effect: -effect.request_rate))


def _effect(
    deployment: Deployment,
    nodes: list[ServingNode],
    rates: Mapping[tuple[str, uuid.UUID], float],
    wanted: bytes,
    digest: str,
) -> ConfigEffect:
    own = [node for node in nodes if belongs(node, deployment.fleet)]
    configs = {route.config.number: route.config for route in deployment.routes.all()}
    return ConfigEffect(
        deployment=deployment,
        configs=tuple(sorted(configs)),
        nodes=tuple(node.name for node in own),
        is_same=all(config.digest == digest for config in configs.values()),
        only_instances=all(_fixed(config.body) == wanted for config in configs.values()),
        request_rate=sum(rates.get((deployment.served_name, node.pk), 0.0) for node in own),
    )


def request_rates(names: set[str], now: datetime) -> dict[tuple[str, uuid.UUID], float]:
    """Return requests a second by served name and node."""
    end = bucket_of(now, 10)
    samples = Sample.objects.filter(
        resolution=Resolution.TEN_SECONDS, bucket__gte=end - _WINDOW, bucket__lt=end, model__in=names
    )
    sums = samples.values_list("model", "node_id").annotate(total=Sum("requests"))
    return {(name, node_id): total / _WINDOW.total_seconds() for name, node_id, total in sums}


def _fixed(body: Mapping[str, Any]) -> bytes:
    return fixed_part(normalise(parse_json(dict(body)), gpu_count=None))
