"""The config form has every field of a config, loses nothing, and shows every refusal at the field it is about."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.web.config_fields import CHILDREN, INLINE, SETTINGS, below, flatten, name_of, read
from console.web.config_nodes import Node, every_name, form_groups, id_of
from console.web.forms.configs import ConfigForm
from serving_node.contract.errors import ContractError
from serving_node.contract.fields import FIELDS, Kind, Shape
from serving_node.contract.model_config import parse_json, parse_pbtxt, problems, to_json
from serving_node.contract.parameters import PARAMETERS
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from tests.contract.config_cases import BAD, SEQUENCES
from tests.contract.configs import messages
from tests.contract.test_validation import BROKEN


def readable(text: str) -> bool:
    try:
        parse_pbtxt(text)
    except ContractError:
        return False
    return True


WRITTEN = [text for text, _, _ in BROKEN] + [case.config for case in (*BAD, *SEQUENCES) if case.config]
REFUSED = [text for text in WRITTEN if readable(text)]


def plain(value: Any, start: str = "") -> Any:
    """A document without what the form does not keep because it means nothing."""
    document = {}
    for spec in CHILDREN.get(start, ()):
        if spec.name not in value:
            continue
        item = value[spec.name]
        if spec.kind is Kind.SECTION and spec.shape is Shape.SINGLE:
            item = plain(item, below(spec))
            if not item and spec.path in INLINE:
                continue
        elif spec.kind is Kind.SECTION and spec.shape is Shape.LIST:
            item = [plain(one, below(spec)) for one in item]
        elif spec.kind is Kind.SECTION:
            item = {key: plain(one, below(spec)) for key, one in item.items()}
        elif spec.kind is Kind.SWITCH and spec.alternatives:
            item = True  # which of them is set counts, not its value
        elif spec.kind is Kind.NUMBER and item == 0:
            continue  # minus zero
        document[spec.name] = item
    return document


def one_line(value: Any) -> bool:
    """Whether all texts are such as fit in an input of one line, and no keys and no texts in lists are empty."""
    if isinstance(value, dict):
        if "" in value:
            return False
        return all(map(one_line, [*value, *value.values()]))
    if isinstance(value, list):
        return all(one_line(item) and (not isinstance(item, str) or bool(item.strip())) for item in value)
    return not isinstance(value, str) or value.splitlines() in ([], [value])


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], max_examples=150)
@given(st.builds(ModelConfig).flatmap(messages).map(lambda config: to_json(config, defaults=False)).filter(one_line))
def test_an_untouched_form_means_the_same_document(body: dict[str, Any]) -> None:
    found, _ = read(flatten(body))
    assert plain(to_json(parse_json(found), defaults=False)) == plain(body)


def test_our_own_parameters_are_fields_and_come_back() -> None:
    body = {"parameters": {"other": {"string_value": "1"}}}
    for known in PARAMETERS:
        key = f"{known.key}.x" if known.per_input else known.key
        body["parameters"][key] = {"string_value": known.default or (known.choices or ("3",))[0]}
    flat = flatten(body)
    assert "parameters{0}#key" in flat and "parameters{1}#key" not in flat
    assert read(flat) == (body, {})


def shown(body: dict[str, Any]) -> set[str]:
    return every_name(form_groups(flatten(body), {}))


def all_nodes(node: Node) -> list[Node]:
    below_it = [*node.children, *([node.template] if node.template else [])]
    return [node, *(found for child in below_it for found in all_nodes(child))]


def test_the_form_has_every_field_of_a_config() -> None:
    nodes = [node for group in form_groups({}, {}) for node in all_nodes(group.section)]
    names = {
        node.index if node.kind == "option" else node.name.replace("#key", "").replace("#value", "") for node in nodes
    }
    generic = set()
    for name in names:
        for depth in range(4):
            name = name.replace(f"[__n{depth}__]", "[]").replace(f"{{__n{depth}__}}", "{}")
        generic.add(name)
    wanted = {spec.path for spec in FIELDS} | {f"{SETTINGS}.{known.key}" for known in PARAMETERS}
    assert wanted <= generic
    ids = [node.id for node in nodes if node.kind not in {"option", "rare", "section"}]
    assert len(ids) == len(set(ids))


def test_every_field_has_a_label_and_help() -> None:
    for group in form_groups({}, {}):
        for node in all_nodes(group.section):
            if node.kind not in {"row", "rare", "option", "alternatives"} and "#" not in node.name and node.name:
                assert node.label and node.help, node.name


@pytest.mark.parametrize("text", REFUSED)
def test_every_refusal_of_the_contract_is_shown_at_its_field(text: str) -> None:
    config = parse_pbtxt(text)
    body = to_json(config, defaults=False)
    flat = flatten(body)
    places = every_name(form_groups(flat, {}))
    for problem in problems(config, model_name="m", gpu_count=1):
        name = name_of(problem.field, flat)
        assert name in places, problem.field
        assert re.split(r"[.\[{]", name)[0] in (re.split(r"[.\[]", problem.field)[0], SETTINGS)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dynamic_batching.preferred_batch_size[1]", "dynamic_batching.preferred_batch_size"),
        ("dynamic_batching.priority_queue_policy[2]", "dynamic_batching.priority_queue_policy{7}"),
        ("dynamic_batching.priority_queue_policy[3]", "dynamic_batching.priority_queue_policy"),
        ("instance_group[1].gpus", "instance_group[5].gpus"),
        ("instance_group[2].gpus", "instance_group"),
        ("parameters[flotilla.keep_loaded].string_value", "settings.flotilla.keep_loaded"),
        ("parameters[flotilla.unknown]", "parameters{0}"),
        ("input[0].dims", "input"),
        ("no_such.field", ""),
        ("", ""),
    ],
)
def test_rows_are_found_by_place_and_by_key(path: str, name: str) -> None:
    flat = {
        "instance_group[2]": "on",
        "instance_group[5]": "on",
        "dynamic_batching.priority_queue_policy{7}": "on",
        "dynamic_batching.priority_queue_policy{7}#key": "2",
        "parameters{0}": "on",
        "parameters{0}#key": "flotilla.unknown",
    }
    assert name_of(path, flat) == name


@pytest.mark.parametrize(
    ("typed", "name", "sentence"),
    [
        ({"max_batch_size": "many"}, "max_batch_size", "“many” is not a whole number."),
        ({"max_batch_size": "-1"}, "max_batch_size", "-1 is too small: at least 0."),
        ({"instance_group[0].gpus": "0, x"}, "instance_group[0].gpus", "“x” is not a whole number."),
        ({"instance_group[0].kind": "KIND_TPU"}, "instance_group[0].kind", "“KIND_TPU” is not one of the choices."),
        (
            {"#scheduling_choice": "dynamic_batching", "dynamic_batching.priority_queue_policy{0}#key": "low"},
            "dynamic_batching.priority_queue_policy{0}#key",
            "“low” is not a whole number.",
        ),
        (
            {"metric_tags{0}#key": "team", "metric_tags{1}#key": "team"},
            "metric_tags{1}#key",
            "“team” is there twice.",
        ),
        (
            {
                "#scheduling_choice": "sequence_batching",
                "sequence_batching.control_input[0].control[0].bool_false_true": "no, yes",
            },
            "sequence_batching.control_input[0].control[0].bool_false_true",
            "“no” is neither true nor false.",
        ),
    ],
)
def test_what_cannot_be_read_is_said_at_its_field_and_kept(typed: dict[str, str], name: str, sentence: str) -> None:
    form = ConfigForm({}, typed)
    assert not form.is_valid()
    assert form.problems()[name][0] == sentence
    nodes = [node for group in form.groups() for node in all_nodes(group.section)]
    (node,) = [node for node in nodes if node.name == name]
    assert node.value == typed[name]
    assert node.errors[0] == sentence


def test_what_is_typed_under_another_choice_is_left_out() -> None:
    typed = {
        "#scheduling_choice": "ensemble_scheduling",
        "dynamic_batching.priority_levels": "nonsense",
        "ensemble_scheduling.step[3].model_name": "inner",
        "ensemble_scheduling.step[3].input_map{0}#key": "X",
        "ensemble_scheduling.step[3].input_map{0}#value": "a",
    }
    body, wrong = read(typed)
    assert body == {"ensemble_scheduling": {"step": [{"model_name": "inner", "input_map": {"X": "a"}}]}}
    assert wrong == {}


def test_a_folded_part_with_an_error_is_open() -> None:
    wrong = {"model_warmup[0].batch_size": ["too small"]}
    groups = form_groups({"model_warmup[0]": "on"}, wrong)
    assert [group.is_open for group in groups if group.label == "Warm-up"] == [True]
    assert id_of("model_warmup[0].batch_size") == "f-model_warmup-0-batch_size"
