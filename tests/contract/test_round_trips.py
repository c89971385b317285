"""A config is the same message after every way through text and JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given

from serving_node.contract.digests import config_digest
from serving_node.contract.model_config import ModelConfig, canonical_json, parse_json, parse_pbtxt, to_json, to_pbtxt
from tests.contract.configs import FULL, model_configs


@given(model_configs())
@example(parse_pbtxt(FULL))
def test_text_gives_an_equal_message(config: ModelConfig) -> None:
    assert parse_pbtxt(to_pbtxt(config)) == config


@given(model_configs())
@example(parse_pbtxt(FULL))
def test_json_gives_an_equal_message(config: ModelConfig) -> None:
    assert parse_json(to_json(config)) == config
    assert parse_json(to_json(config, defaults=False)) == config
    assert parse_json(json.dumps(to_json(config))) == config


@given(model_configs())
@example(parse_pbtxt(FULL))
def test_text_of_json_of_text_gives_equal_digests(config: ModelConfig) -> None:
    through = parse_pbtxt(to_pbtxt(parse_json(json.dumps(to_json(config)))))
    assert config_digest(through) == config_digest(config)


@given(model_configs())
@example(parse_pbtxt(FULL))
def test_canonical_json_is_a_fixed_point(config: ModelConfig) -> None:
    canonical = canonical_json(config)
    assert canonical_json(parse_json(canonical.decode())) == canonical


def test_canonical_json_writes_large_integers_as_strings() -> None:
    policy = json.loads(canonical_json(parse_pbtxt(FULL)))["dynamic_batching"]["priority_queue_policy"]["1"]
    assert policy == {"default_timeout_microseconds": "9007199254740993"}


def test_empty_messages_keep_their_presence() -> None:
    config = parse_pbtxt("dynamic_batching {} version_policy { all {} } input { name: 'x' reshape {} }")
    document = to_json(config, defaults=False)
    assert document == {
        "version_policy": {"all": {}},
        "input": [{"name": "x", "reshape": {}}],
        "dynamic_batching": {},
    }
    assert parse_json(document) == config


@pytest.mark.parametrize(
    ("one", "other"), [("max_batch_size: 0", ""), ("name: 'a' backend: 'b'", "backend: 'b' name: 'a'")]
)
def test_equal_configs_written_differently_have_one_canonical_form(one: str, other: str) -> None:
    assert canonical_json(parse_pbtxt(one)) == canonical_json(parse_pbtxt(other))


def test_json_is_tritons_config_document() -> None:
    """Every field without presence is there, numbers are numbers, map keys strings, order is the proto file's."""
    document = to_json(parse_pbtxt(FULL))
    assert list(document)[:6] == ["name", "platform", "backend", "runtime", "version_policy", "max_batch_size"]
    assert document["input"] == [
        {
            "name": "x",
            "data_type": "TYPE_FP32",
            "format": "FORMAT_NCHW",
            "dims": [3, 224, 224],
            "is_shape_tensor": False,
            "allow_ragged_batch": False,
            "optional": False,
            "is_non_linear_format_io": False,
        }
    ]
    assert document["version_policy"] == {"specific": {"versions": [1, 3]}}
    assert document["dynamic_batching"]["max_queue_delay_microseconds"] == 100
    assert (
        document["dynamic_batching"]["priority_queue_policy"]["1"]["default_timeout_microseconds"] == 9007199254740993
    )
    assert document["batch_input"] == []
    assert document["metric_tags"] == {}
    assert "optimization" not in document
