from __future__ import annotations

from serving_node.contract.model_config import fixed_part, normalise, parse_json

BASE = {"name": "m", "backend": "onnxruntime", "max_batch_size": 8}


def part(**more: object) -> bytes:
    return fixed_part(normalise(parse_json({**BASE, **more}), gpu_count=None))


def test_instances_and_versions_change_in_place_and_nothing_else() -> None:
    assert part(instance_group=[{"count": 3, "kind": "KIND_CPU"}]) == part()
    assert part(version_policy={"all": {}}) == part()
    assert part(max_batch_size=16) != part()
    assert part(dynamic_batching={}) != part()


def test_the_config_itself_is_left_alone() -> None:
    config = parse_json({**BASE, "instance_group": [{"count": 3, "kind": "KIND_CPU"}]})
    fixed_part(config)
    assert config.instance_group[0].count == 3
