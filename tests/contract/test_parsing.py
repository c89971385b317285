"""What a config may look like, and one clear message for what it may not."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import parse_json, parse_pbtxt
from serving_node.contract.proto import model_config_pb2 as pb


@pytest.mark.parametrize(
    ("text", "message", "field"),
    [
        (
            'name: "m"\nmax_batch_sizes: 3',
            "line 2, column 1: ModelConfig has no field 'max_batch_sizes', did you mean 'max_batch_size'?",
            "max_batch_sizes",
        ),
        ("input { qqq: 1 }", "line 1, column 9: ModelInput has no field 'qqq'", "qqq"),
        (
            "sequence_batching { direct { max_queue_delay: 1 } }",
            "line 1, column 30: ModelSequenceBatching.StrategyDirect has no field 'max_queue_delay', did you mean "
            "'max_queue_delay_microseconds'?",
            "max_queue_delay",
        ),
        ("parameters { key: 'a' valu {} }", "did you mean 'value'?", "valu"),
        ("17: 3", "line 1, column 1: ModelConfig has no field '17'", "17"),
        ("input [ { name: 'x' } ", "line 1, column 23: '': Expected \",\".", ""),
        ("max_batch_size: 99999999999", "Value out of range: 99999999999", ""),
        ('name: "a" name: "b"', 'should not have multiple "name" fields', ""),
        ("dynamic_batching {} sequence_batching {}", "another member of oneof", ""),
        ("[some.extension]: 1", "does not have extensions", ""),
        ('name: "\\377"', "can't decode byte 0xff", ""),
        ("input { data_type: FP32 }", "no value named FP32", ""),
        ("input { data_type: 99 }", "input[0].data_type: 99 is not a value of DataType", "input[0].data_type"),
        (
            "sequence_batching { direct { minimum_slot_utilization: nan } }",
            "sequence_batching.direct.minimum_slot_utilization must be a finite number",
            "sequence_batching.direct.minimum_slot_utilization",
        ),
        (
            "model_warmup { inputs { key: 'X' value { data_type: 77 } } }",
            "model_warmup[0].inputs[X].data_type: 77 is not a value of DataType",
            "model_warmup[0].inputs[X].data_type",
        ),
    ],
)
def test_text_is_refused_with_its_place(text: str, message: str, field: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_pbtxt(text)
    assert message in caught.value.message
    assert caught.value.field == field


def test_no_field_is_suggested_for_a_very_long_name() -> None:
    with pytest.raises(ContractError) as caught:
        parse_json({"max_batch_size" + "s" * 99: 1})
    assert "did you mean" not in caught.value.message


@pytest.mark.parametrize("error", [text_format.ParseError("no place"), ValueError("no place")])
def test_text_errors_without_a_place_name_the_file(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(text_format, "Parse", refuse)
    with pytest.raises(ContractError) as caught:
        parse_pbtxt("")
    assert caught.value.message == "config.pbtxt: no place"


@pytest.mark.parametrize(
    ("text", "message", "field"),
    [
        (
            '{"max_batch_sizes": 3}',
            "unknown field 'max_batch_sizes': ModelConfig has no field 'max_batch_sizes', did you "
            "mean 'max_batch_size'?",
            "max_batch_sizes",
        ),
        ('{"input": [{}, {"qqq": 1}]}', "unknown field 'input[1].qqq': ModelInput has no field 'qqq'", "input[1].qqq"),
        ("[]", "the config must be an object", ""),
        ('{"input": {}}', "input must be a list", "input"),
        ('{"input": [3]}', "input[0] must be an object", "input[0]"),
        ('{"metric_tags": []}', "metric_tags must be an object", "metric_tags"),
        ('{"name": 3}', "name must be a string", "name"),
        ('{"max_batch_size": "x"}', "max_batch_size must be an integer", "max_batch_size"),
        ('{"max_batch_size": 1.5}', "max_batch_size must be an integer", "max_batch_size"),
        ('{"max_batch_size": true}', "max_batch_size must be an integer", "max_batch_size"),
        ('{"max_batch_size": 5000000000}', "max_batch_size: Value out of range: 5000000000", "max_batch_size"),
        ('{"response_cache": {"enable": 1}}', "response_cache.enable must be true or false", "response_cache.enable"),
        ('{"response_cache": {"enable": []}}', "response_cache.enable must be true or false", "response_cache.enable"),
        (
            '{"sequence_batching": {"direct": {"minimum_slot_utilization": "1"}}}',
            "sequence_batching.direct.minimum_slot_utilization must be a number",
            "sequence_batching.direct.minimum_slot_utilization",
        ),
        (
            '{"model_metrics": {"metric_control": [{"histogram_options": {"buckets": [1e999]}}]}}',
            "model_metrics.metric_control[0].histogram_options.buckets[0] must be a finite number",
            "model_metrics.metric_control[0].histogram_options.buckets[0]",
        ),
        (
            '{"optimization": {"priority": "HIGH"}}',
            "optimization.priority: 'HIGH' is not one of PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN",
            "optimization.priority",
        ),
        ('{"optimization": {"priority": 9}}', "optimization.priority: 9 is not one of", "optimization.priority"),
        ('{"optimization": {"priority": true}}', "optimization.priority: True is not", "optimization.priority"),
        (
            '{"dynamic_batching": {}, "sequence_batching": {}}',
            "'sequence_batching' and 'dynamic_batching' exclude each other",
            "sequence_batching",
        ),
        (
            '{"maxBatchSize": 1, "max_batch_size": 1}',
            "'max_batch_size' and 'maxBatchSize' exclude each other",
            "max_batch_size",
        ),
        (
            '{"dynamic_batching": {"priority_queue_policy": {"x": {}}}}',
            "dynamic_batching.priority_queue_policy[x] must be an integer",
            "dynamic_batching.priority_queue_policy[x]",
        ),
        (
            '{"dynamic_batching": {"priority_queue_policy": {"-1": {}}}}',
            "dynamic_batching.priority_queue_policy[-1]: Value out of range: -1",
            "dynamic_batching.priority_queue_policy[-1]",
        ),
        ('{"name": "\\ud800"}', "surrogates not allowed", "name"),
        ('{"metric_tags": {"a": "\\ud800"}}', "surrogates not allowed", "metric_tags[a]"),
        ('{"metric_tags": {"\\ud800": "a"}}', "a field name is not valid Unicode", ""),
        ('{"name": "a", "name": "b"}', "field 'name' is given more than once", "name"),
        ("{", "not valid JSON: line 1, column 2: Expecting property name", ""),
        ('{"name": "a"} x', "not valid JSON: line 1, column 15: Extra data", ""),
        ('{"name" "a"}', "not valid JSON: line 1, column 9: Expecting ':' delimiter", ""),
        ("{name: \u00a3}", "not valid JSON: line 1, column 8: Unexpected character", ""),
        ("{name: 'a", "not valid JSON: line 1, column 8: Unexpected character", ""),
        ("{max_batch_size: 1.2.3}", "not valid JSON", ""),
        ('{"max_batch_size": NaN}', "NaN is not a JSON number", ""),
        ("[" * 100_000, "not valid JSON: nested too deeply", ""),
        ('{"max_batch_size": 1' + "0" * 5000 + "}", "not valid JSON: Exceeds the limit", ""),
    ],
)
def test_json_is_refused_with_its_place(text: str, message: str, field: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_json(text)
    assert message in caught.value.message
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("{max_batch_size: 8}", {"max_batch_size": 8}),
        ("{sequence_batching: {direct: {}}}", {"sequence_batching": {"direct": {}}}),
        ("{'name': 'it\\'s \"m\"'}", {"name": 'it\'s "m"'}),
        ("{'name': 'tab\\t, \\u0041, \\\\'}", {"name": "tab\t, A, \\"}),
        ('{"name": "a, b]",\n}', {"name": "a, b]"}),
        ('{"input": [{"dims": [1, 2,],},],}', {"input": [{"dims": [1, 2]}]}),
        ("{response_cache: {enable: true}, optimization: null}", {"response_cache": {"enable": True}}),
        ('{"input": [{"data_type": "type_fp32"}]}', {"input": [{"data_type": "TYPE_FP32"}]}),
        ('{"input": [{"data_type": 11}]}', {"input": [{"data_type": "TYPE_FP32"}]}),
        ('{"input": [{"dims": ["-1", 3.0]}]}', {"input": [{"dims": [-1, 3]}]}),
        ('{"maxBatchSize": "8"}', {"max_batch_size": 8}),
        ('{"responseCache": {"enable": "true"}}', {"response_cache": {"enable": True}}),
        ('{"responseCache": {"enable": "false"}}', {"response_cache": {"enable": False}}),
    ],
)
def test_json_is_as_lenient_as_tritons(text: str, strict: dict[str, Any]) -> None:
    assert parse_json(text) == parse_json(strict)


def test_a_comma_without_an_item_stays_an_error() -> None:
    for text in ("{,}", "{a: 1,,}", "[1,]],"):
        with pytest.raises(ContractError):
            parse_json(text)


@given(st.text(max_size=60) | st.text("{}[]:,'\"\\ name0123456789.-", max_size=40))
def test_any_text_gives_a_config_or_a_contract_error(text: str) -> None:
    for parse in (parse_pbtxt, parse_json):
        try:
            config = parse(text)
        except ContractError as error:
            error.message.encode()  # can be sent
        else:
            assert isinstance(config, pb.ModelConfig)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["input", "dims", "name", "dynamic_batching", "metric_tags", "x"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["input", "optimization", "metric_tags", "version_policy", "name"]), _JSON))
def test_any_json_object_gives_a_config_or_a_contract_error(document: dict[str, Any]) -> None:
    with contextlib.suppress(ContractError):
        assert isinstance(parse_json(document), pb.ModelConfig)
