from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.observability.tracing.options import (
    TraceLevel,
    TraceMode,
    TraceOptions,
    read_trace_config,
    read_trace_level,
    trace_options,
)
from serving_node.observability.tracing.settings import (
    TraceSetting,
    TraceSettings,
    changes_from_json,
    changes_from_lists,
)


def options(*texts: str, **more: Any) -> TraceOptions:
    return trace_options([read_trace_config(text) for text in texts], **more)


def settings(*texts: str) -> TraceSettings:
    return TraceSettings(options("triton,file=/f", *texts))


def test_flags_together_make_the_options() -> None:
    made = options(
        "mode=OpenTelemetry",
        "level=TIMESTAMPS",
        "level=tensors",
        "rate=5",
        "count=7",
        "triton,file=a=b",
        "triton,log-frequency=3",
        "opentelemetry,url=http://c:4318/v1/traces",
        "opentelemetry,resource=a.b=c=d",
        "opentelemetry,resource=e=f",
        "opentelemetry,bsp_schedule_delay=100",
    )
    assert (made.mode, made.level) == (TraceMode.OPENTELEMETRY, TraceLevel.TIMESTAMPS | TraceLevel.TENSORS)
    assert (made.rate, made.count, made.file, made.log_frequency) == (5, 7, "a=b", 3)
    telemetry = made.opentelemetry
    assert telemetry.url == "http://c:4318/v1/traces"
    assert telemetry.resource == (("a.b", "c=d"), ("e", "f"))
    assert (telemetry.schedule_delay_ms, telemetry.max_queue_size) == (100, 2048)


def test_config_goes_over_deprecated_flags_and_off_switches_off() -> None:
    deprecated = {"rate": 9, "file": "old", "count": None}
    made = options("rate=2", levels=[read_trace_level("min")], deprecated=deprecated)
    assert (made.rate, made.file, made.count, made.level) == (2, "old", -1, TraceLevel.TIMESTAMPS)
    assert options("level=TIMESTAMPS", "level=OFF").level is TraceLevel.OFF


def test_flags_go_over_the_environment() -> None:
    environment = {"OTEL_BSP_MAX_QUEUE_SIZE": "700", "OTEL_BSP_SCHEDULE_DELAY": "1"}
    telemetry = options("opentelemetry,bsp_schedule_delay=9", environment=environment).opentelemetry
    assert (telemetry.max_queue_size, telemetry.schedule_delay_ms) == (700, 9)


@pytest.mark.parametrize(
    "text",
    [
        "rate",
        "rate=",
        "=5",
        ",rate=5",
        "rate=x",
        "rate=-1",
        "count=-2",
        "mode=x",
        "other,file=x",
        "level=x",
        "triton,file=",
        "triton,url=x",
        "file=x",
        "opentelemetry,resource=x",
        "opentelemetry,bsp_max_queue_size=0",
        "opentelemetry,bsp_max_queue_size=5",
        "opentelemetry,sampler=x",
    ],
)
def test_refuses_flags_that_mean_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        options(text)


def test_model_follows_the_server_in_what_is_not_its_own() -> None:
    held = settings("level=TIMESTAMPS", "rate=1")
    held.update("m", changes_from_json({"trace_rate": "9"}))
    held.update("", changes_from_json({"trace_count": "4", "trace_rate": "2"}))
    assert held.describe("m") == {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": ["9"],
        "trace_count": ["4"],
        "log_frequency": ["0"],
        "trace_file": ["/f"],
        "trace_mode": ["triton"],
    }
    assert held.describe("other")["trace_rate"] == ["2"]
    held.update("m", changes_from_json({"trace_rate": None}))
    assert held.describe("m")["trace_rate"] == ["2"]
    held.update("", changes_from_json({"trace_count": None, "trace_rate": None}))
    assert held.describe("m")["trace_rate"] == ["1"]
    assert held.describe("")["trace_count"] == ["-1"]


def test_replaced_settings_are_given_back() -> None:
    held = settings("level=TIMESTAMPS")
    before = held.of("")
    assert held.update("", changes_from_json({"trace_rate": "1"})) == [before]
    assert before.released
    assert not held.of("").released


def test_invalid_settings_change_nothing() -> None:
    held = settings("level=TIMESTAMPS", "rate=3")
    for changes in ({"trace_rate": "0"}, {"trace_count": "0"}):
        with pytest.raises(InferenceError, match="Attempting to set invalid trace setting :"):
            held.update("", changes_from_json(changes))
    assert held.describe("")["trace_rate"] == ["3"]
    held.update("", changes_from_json({"trace_level": ["OFF"], "trace_rate": "0"}))
    assert not held.enabled
    with pytest.raises(InferenceError, match="trace file name is not given"):
        TraceSettings(TraceOptions()).update("", changes_from_json({"trace_level": ["TIMESTAMPS"]}))


def test_opentelemetry_shows_its_options_and_no_file() -> None:
    made = TraceSettings(options("mode=opentelemetry", "opentelemetry,url=http://u", "opentelemetry,resource=a=b"))
    assert made.describe("") == {
        "trace_level": ["OFF"],
        "trace_rate": ["1000"],
        "trace_count": ["-1"],
        "trace_mode": ["opentelemetry"],
        "url": ["http://u"],
        "resource": ["a=b"],
        "bsp_schedule_delay": ["5000"],
        "bsp_max_export_batch_size": ["512"],
        "bsp_max_queue_size": ["2048"],
    }


# What a real Triton answers over HTTP.
@pytest.mark.parametrize(
    ("document", "code", "sentence"),
    [
        (
            {"trace_file": None},
            ErrorCode.UNSUPPORTED,
            "trace file location can not be updated through network protocol",
        ),
        ({"trace_level": "OFF"}, ErrorCode.INTERNAL, "attempt to access JSON non-array as array"),
        ({"trace_level": [1]}, ErrorCode.INTERNAL, "attempt to access JSON non-string as string"),
        (
            {"trace_level": ["OFF", "TIMESTAMPS"]},
            ErrorCode.INVALID_ARG,
            "Expect only one trace level 'OFF' is specified",
        ),
        ({"trace_rate": 5}, ErrorCode.INTERNAL, "attempt to access JSON non-string as string"),
        ({"trace_rate": "x"}, ErrorCode.INVALID_ARG, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": ""}, ErrorCode.INVALID_ARG, "Unable to parse 'trace_rate', got: "),
        (
            {"trace_rate": "9" * 5000},
            ErrorCode.INVALID_ARG,
            f"Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: {'9' * 5000}",
        ),
        (
            {"trace_count": "-2"},
            ErrorCode.INVALID_ARG,
            "Unable to parse 'trace_count'. Expecting value >= -1, got:-2",
        ),
        (
            {"trace_count": "99999999999"},
            ErrorCode.INVALID_ARG,
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 99999999999",
        ),
        ({"trace_mode": "x"}, ErrorCode.UNSUPPORTED, "trace mode can not be updated through network protocol"),
        ({"trace_raet": "5"}, ErrorCode.INVALID_ARG, "unknown trace setting 'trace_raet'"),
    ],
)
def test_bad_json_settings_are_refused(document: dict[str, Any], code: ErrorCode, sentence: str) -> None:
    with pytest.raises(InferenceError) as caught:
        changes_from_json(document)
    assert (caught.value.code, caught.value.message) == (code, sentence)


def test_lists_are_refused_as_over_grpc() -> None:
    with pytest.raises(InferenceError, match="expect only 1 value for 'trace_rate'"):
        changes_from_lists({"trace_rate": ["1", "2"]})
    with pytest.raises(InferenceError, match="Expecting value >= -1, got: -3"):
        changes_from_lists({"trace_count": ["-3"]})
    assert changes_from_lists({"trace_level": [], "trace_rate": [" 7"]}) == {"level": None, "rate": 7}
    assert changes_from_json({"trace_level": []}) == {}


@given(st.dictionaries(st.sampled_from(["trace_level", "trace_rate", "trace_count", "log_frequency"]), st.text()))
def test_any_text_is_taken_or_refused_with_a_sentence(document: dict[str, str]) -> None:
    held = settings("level=TIMESTAMPS")
    with contextlib.suppress(InferenceError):
        held.update("", changes_from_json(document))
    assert int(held.describe("")["trace_rate"][0]) >= 0


def test_every_nth_request_until_the_count_is_used_up() -> None:
    setting = TraceSetting(TraceLevel.TIMESTAMPS, rate=3, count=2, log_frequency=0)
    assert [setting.sample(forced=False) for _ in range(12)] == [False, False, True] * 2 + [False] * 6
    assert (setting.count, setting.created) == (0, 2)


def test_a_traced_caller_is_traced_whatever_the_rate() -> None:
    for rate, count in ((1000, -1), (0, -1), (1, 0)):
        setting = TraceSetting(TraceLevel.TIMESTAMPS, rate, count, 0)
        assert setting.sample(forced=True)
        assert setting.count == count
    assert not TraceSetting(TraceLevel.OFF, 1, -1, 0).sample(forced=True)
    assert not TraceSetting(TraceLevel.TIMESTAMPS, 0, -1, 0).sample(forced=False)
