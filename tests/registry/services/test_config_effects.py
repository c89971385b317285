"""What a config would do to what runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from registry.domain.rollups import bucket_of
from registry.models import Resolution, Sample
from registry.selectors.config_effects import config_effects
from registry.services import configs
from registry.services.samples import partitions_ensure


def test_each_deployment_says_what_would_happen_there(world: Any) -> None:
    now = timezone.now()
    partitions_ensure(now)
    node = world.node()
    model = world.model("mlp")
    world.ready(model)
    world.deploy(model, world.development, world.spec({"version": 1, "weight": 100}))
    first = configs.config_latest(model)
    bucket = bucket_of(now, 10) - timedelta(seconds=20)
    Sample.objects.create(
        resolution=Resolution.TEN_SECONDS, bucket=bucket, node_id=node.pk, model="mlp", version="1", requests=600
    )
    (same,) = config_effects(model, first.body, first.digest, now)
    assert (same.is_same, same.configs, same.nodes, same.request_rate) == (True, (first.number,), ("node-1",), 2.0)
    more = {**first.body, "instance_group": [{"count": 4, "kind": "KIND_CPU"}]}
    (resized,) = config_effects(model, more, "0" * 64, now)
    assert (resized.is_same, resized.only_instances) == (False, True)
    (other,) = config_effects(model, {**first.body, "max_batch_size": 64}, "0" * 64, now)
    assert (other.is_same, other.only_instances) == (False, False)


def test_what_is_deployed_nowhere_affects_nothing(world: Any) -> None:
    model = world.model("mlp")
    assert config_effects(model, {"name": "mlp"}, "0" * 64, timezone.now()) == ()
