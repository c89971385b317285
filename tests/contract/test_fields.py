"""The form catalogue knows every field of a config, and says something true about each."""

from __future__ import annotations

from typing import Any

import pytest

from serving_node.contract.datatypes import WIRE_NAMES
from serving_node.contract.field_texts import CHOICE_TEXTS, FIELD_TEXTS
from serving_node.contract.fields import FIELDS, FIELDS_BY_PATH, FieldSpec, Group, Kind, Shape
from serving_node.contract.model_config import normalise, parse_json, parse_pbtxt, to_json
from serving_node.contract.proto import model_config_pb2
from serving_node.contract.proto.model_config_pb2 import ModelConfig


def _all_messages(descriptors: Any) -> list[Any]:
    found = []
    for message in descriptors:
        if not message.GetOptions().map_entry:
            found += [message, *_all_messages(message.nested_types)]
    return found


MESSAGES = _all_messages(model_config_pb2.DESCRIPTOR.message_types_by_name.values())


def test_every_field_of_every_message_has_texts_and_no_text_is_left_over() -> None:
    keys = {field.full_name.removeprefix("inference.") for message in MESSAGES for field in message.fields}
    assert set(FIELD_TEXTS) == keys


def test_every_enum_value_has_a_label() -> None:
    enums = [*model_config_pb2.DESCRIPTOR.enum_types_by_name.values()]
    enums += [enum for message in MESSAGES for enum in message.enum_types]
    names = {value.name for enum in enums for value in enum.values if enum.name != "DataType"}
    assert set(CHOICE_TEXTS) == names | {"TYPE_INVALID"}
    types = [choice.label for choice in FIELDS_BY_PATH["input[].data_type"].choices]
    assert types == [CHOICE_TEXTS["TYPE_INVALID"], *WIRE_NAMES]


def _paths(document: Any, path: str) -> set[str]:
    """Paths of the catalogue that a JSON config uses."""
    found: set[str] = set()
    for name, value in document.items():
        here = f"{path}{name}"
        found.add(here)
        spec = FIELDS_BY_PATH[here]
        if spec.kind is not Kind.SECTION:
            continue
        if spec.shape is Shape.SINGLE:
            found |= _paths(value, f"{here}.")
        elif spec.shape is Shape.LIST:
            found |= {inner for item in value for inner in _paths(item, f"{here}[].")}
        else:
            found |= {inner for item in value.values() for inner in _paths(item, f"{here}{{}}.")}
    return found


def _filled(message: Any) -> Any:
    """Set every field of ``message`` once; of fields that exclude each other the last."""
    for field in message.DESCRIPTOR.fields:
        target = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            key = 1 if field.message_type.fields_by_name["key"].cpp_type != value.CPPTYPE_STRING else "k"
            if value.message_type is not None:
                _filled(target[key])
            else:
                target[key] = "v"
        elif field.message_type is not None:
            if field.is_repeated:
                _filled(target.add())
            else:
                target.SetInParent()
                _filled(target)
    return message


def test_every_path_that_a_config_can_have_is_in_the_catalogue_and_the_reverse() -> None:
    full = _filled(ModelConfig())
    used = _paths(to_json(full), "")
    for scheduling in ("dynamic_batching", "sequence_batching"):
        config = ModelConfig()
        getattr(config, scheduling).SetInParent()
        used |= _paths(to_json(_filled_one(config, scheduling)), "")
    # Alternatives hide one another in a single message.
    hidden = {spec.path for spec in FIELDS if spec.alternatives}
    missing = set(FIELDS_BY_PATH) - used
    assert not {path for path in missing if not any(path == h or path.startswith(f"{h}.") for h in hidden)}
    assert len(FIELDS) == len(FIELDS_BY_PATH)


def _filled_one(config: ModelConfig, name: str) -> ModelConfig:
    _filled(getattr(config, name))
    return config


@pytest.mark.parametrize("spec", FIELDS, ids=lambda spec: spec.path)
def test_a_field_is_fit_for_a_form(spec: FieldSpec) -> None:
    assert spec.label
    assert not spec.label.endswith(".")
    assert spec.help.endswith(".")
    assert len(spec.help) < 120
    assert spec.name == spec.path.rpartition(".")[2]
    assert bool(spec.choices) == (spec.kind is Kind.CHOICE)
    assert (spec.key_kind is not None) == (spec.shape is Shape.MAP)
    if spec.kind is Kind.INTEGER:
        assert spec.minimum is not None
        assert spec.maximum is not None
        assert spec.minimum < spec.maximum
    if spec.default is not None and spec.kind is Kind.INTEGER:
        assert spec.default in (0, spec.minimum) or spec.minimum <= spec.default <= spec.maximum  # type: ignore[operator]
    if spec.kind is Kind.CHOICE and spec.shape is Shape.SINGLE:
        assert spec.default in [choice.value for choice in spec.choices]


def test_parents_come_before_what_lies_below_them() -> None:
    seen: set[str] = set()
    for spec in FIELDS:
        parent = spec.path.rpartition(".")[0].removesuffix("[]").removesuffix("{}")
        assert not parent or parent in seen
        seen.add(spec.path)


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("name", Group.MODEL),
        ("input[].dims", Group.TENSORS),
        ("max_batch_size", Group.BATCHING),
        ("dynamic_batching.preferred_batch_size", Group.BATCHING),
        ("dynamic_batching.default_queue_policy.max_queue_size", Group.LIMITS),
        ("dynamic_batching.priority_queue_policy{}.timeout_action", Group.LIMITS),
        ("instance_group[].count", Group.INSTANCES),
        ("instance_group[].rate_limiter.resources[].name", Group.LIMITS),
        ("sequence_batching.oldest.preserve_ordering", Group.SEQUENCES),
        ("response_cache.enable", Group.CACHE),
        ("model_warmup[].inputs{}.dims", Group.WARM_UP),
        ("parameters{}.string_value", Group.ADVANCED),
    ],
)
def test_group_of_a_field(path: str, group: Group) -> None:
    assert FIELDS_BY_PATH[path].group is group


def test_every_group_has_fields() -> None:
    assert {spec.group for spec in FIELDS} == set(Group)


def test_facts_that_a_form_needs() -> None:
    delay = FIELDS_BY_PATH["dynamic_batching.max_queue_delay_microseconds"]
    assert (delay.kind, delay.minimum, delay.maximum, delay.unit) == (Kind.INTEGER, 0, 2**64 - 1, "microseconds")
    size = FIELDS_BY_PATH["max_batch_size"]
    assert (size.minimum, size.maximum, size.default) == (0, 2**31 - 1, 0)
    dims = FIELDS_BY_PATH["input[].dims"]
    assert (dims.kind, dims.shape, dims.minimum, dims.default) == (Kind.INTEGER, Shape.LIST, -1, None)
    share = FIELDS_BY_PATH["sequence_batching.direct.minimum_slot_utilization"]
    assert (share.kind, share.minimum, share.maximum) == (Kind.NUMBER, 0, 1)
    schedulers = [spec.path for spec in FIELDS if spec.alternatives == "scheduling_choice"]
    assert schedulers == ["dynamic_batching", "sequence_batching", "ensemble_scheduling"]
    policies = FIELDS_BY_PATH["dynamic_batching.priority_queue_policy"]
    assert (policies.kind, policies.shape, policies.key_kind) == (Kind.SECTION, Shape.MAP, Kind.INTEGER)
    tags = FIELDS_BY_PATH["metric_tags"]
    assert (tags.kind, tags.shape, tags.key_kind) == (Kind.TEXT, Shape.MAP, Kind.TEXT)


@pytest.mark.parametrize(
    "written", ["version_policy { latest {} }", "sequence_batching {}", 'backend: "python" instance_group {}']
)
def test_defaults_of_the_catalogue_are_those_that_normalising_writes(written: str) -> None:
    config = parse_pbtxt(written)
    full = to_json(normalise(config))
    expected = {
        "version_policy.latest.num_versions": full["version_policy"]["latest"]["num_versions"],
        "instance_group[].count": 1,
        "sequence_batching.max_sequence_idle_microseconds": full.get("sequence_batching", {}).get(
            "max_sequence_idle_microseconds", 1_000_000
        ),
    }
    assert {path: FIELDS_BY_PATH[path].default for path in expected} == expected


def test_a_choice_is_written_as_json_takes_it() -> None:
    for choice in FIELDS_BY_PATH["instance_group[].kind"].choices:
        assert (
            to_json(parse_json({"instance_group": [{"kind": choice.value}]}))["instance_group"][0]["kind"]
            == choice.value
        )
