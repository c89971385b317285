"""Statistics, metrics, trace and log settings."""

from __future__ import annotations

import json
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.differential.cases.infer import PLAIN, add_sub
from tests.differential.steps import Case, Grpc, Http, Metrics, Step, Stream, Until
from tests.differential.tensors import T, flat, grpc_raw, http_binary, http_json, infer_message
from tests.differential.views import times

_HOW_GOOD, _HOW_BAD = (T("HOW", "BYTES", [1], [how]) for how in ("good", "raise"))
_WRONG = T("HOW", "BYTES", [2], ["a", "b"])


def _stats(model: str, version: str = "") -> Http:
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/stats"
    return Http("GET", path, view=times, eventually=True)


def _stats_grpc(model: str, version: str = "") -> Grpc:
    request = pb.ModelStatisticsRequest(name=model, version=version)
    return Grpc("ModelStatistics", request, view=times, eventually=True)


def _repeat(count: int, how: str = "", **parameters: Any) -> Stream:
    inputs = [T("IN", "INT32", [1], [count])] + ([T("HOW", "BYTES", [1], [how])] if how else [])
    return Stream((infer_message("counted_repeat", inputs, parameters=parameters),))


def _counted(id: str, model: str, *steps: Step, **more: Any) -> Case:
    return Case(
        f"stats-{id}", (*steps, _stats(model), _stats_grpc(model), Metrics((model,))), (model,), fresh=True, **more
    )


def _statistics() -> list[Case]:
    good = http_json("counted", add_sub())
    return [
        _counted("nothing-yet", "counted"),
        _counted("one", "counted", good),
        _counted("batches", "counted", good, http_binary("counted", add_sub(3)), grpc_raw("counted", add_sub(8)), good),
        _counted(
            "bad-requests",
            "counted",
            http_json("counted", add_sub(9)),
            http_json("counted", add_sub()[:1]),
            http_json("counted", [*add_sub(), T("X", "FP32", [1], [1.0])]),
            good,
        ),
        _counted(
            "failing",
            "counted_failing",
            http_json("counted_failing", [_HOW_GOOD]),
            http_json("counted_failing", [_HOW_BAD]),
            grpc_raw("counted_failing", [_HOW_BAD]),
            http_json("counted_failing", [T("HOW", "BYTES", [1], ["CANCELLED"])]),
            http_json("counted_failing", [T("HOW", "BYTES", [1], ["UNAVAILABLE"])]),
            http_json("counted_failing", [_WRONG]),
        ),
        _counted("decoupled-three", "counted_repeat", _repeat(3)),
        _counted("decoupled-with-last", "counted_repeat", _repeat(2, "with the last")),
        _counted("decoupled-zero", "counted_repeat", _repeat(0)),
        _counted("decoupled-error", "counted_repeat", _repeat(2, "error")),
        _counted("decoupled-twice", "counted_repeat", _repeat(1), _repeat(3)),
        Case("stats-all-names", (Http("GET", "/v2/models/stats", view=_has("counted")),), ("counted",)),
        Case(
            "stats-all-grpc",
            (Grpc("ModelStatistics", pb.ModelStatisticsRequest(), view=_has("counted")),),
            ("counted",),
        ),
        Case("stats-unknown", (_stats("nobody"), _stats_grpc("nobody"))),
        Case("stats-unknown-version", (_stats("counted", "7"), _stats_grpc("counted", "7")), ("counted",)),
        Case("stats-bad-version", (_stats("counted", "abc"), _stats_grpc("counted", "abc")), ("counted",)),
        Case("stats-version", (_stats("v_all", "2"), _stats_grpc("v_all", "2")), ("v_all",), fresh=True),
        Case("stats-versions", (_stats("v_two"),), ("v_two",), fresh=True),
        Case("stats-unloaded", (_stats("life_never"), _stats_grpc("life_never"))),
        Case("stats-warmed-up", (_stats("warm"),), ("warm",), fresh=True),
        Case("metrics-tags", (http_json("tagged", PLAIN), Metrics(("tagged",))), ("tagged",), fresh=True),
        Case(
            "metrics-unloaded",
            (
                Http("POST", "/v2/repository/models/tagged/unload"),
                Until("tagged", "UNAVAILABLE"),
                Metrics(("tagged",)),
                Http("POST", "/v2/repository/models/tagged/load"),
                Metrics(("tagged",)),
            ),
            ("tagged",),
        ),
        Case("metrics-versions", (Metrics(("v_all",)),), ("v_all",), fresh=True),
    ]


def _has(model: str) -> Any:
    def view(answer: dict[str, Any]) -> dict[str, Any]:
        document = answer.get("json", answer.get("message", {}))
        rows = [row for row in document["model_stats"] if row["name"] == model]
        return {"rows": len(rows), "keys": sorted(document)}

    return view


def _setting(rows: dict[str, Any], model: str = "") -> Http:
    path = f"/v2/models/{model}/trace/setting" if model else "/v2/trace/setting"
    return Http("POST", path, json.dumps(rows).encode())


def _shown(model: str = "") -> Http:
    return Http("GET", f"/v2/models/{model}/trace/setting" if model else "/v2/trace/setting")


def _setting_grpc(rows: dict[str, list[str]], model: str = "") -> Grpc:
    message = pb.TraceSettingRequest(model_name=model)
    for name, values in rows.items():
        message.settings[name].SetInParent()
        message.settings[name].value.extend(values)
    return Grpc("TraceSetting", message)


def _traces() -> list[Case]:
    back = _setting({"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None})
    model_back = _setting(
        {"trace_level": None, "trace_rate": None, "trace_count": None, "log_frequency": None}, "plain"
    )
    values: dict[str, Any] = {
        "level-list": {"trace_level": ["TIMESTAMPS"]},
        "level-two": {"trace_level": ["TIMESTAMPS", "TENSORS"]},
        "level-text": {"trace_level": "TIMESTAMPS"},
        "level-off": {"trace_level": ["OFF"]},
        "level-off-and-on": {"trace_level": ["OFF", "TIMESTAMPS"]},
        "level-unknown": {"trace_level": ["EVERYTHING"]},
        "level-lower": {"trace_level": ["timestamps"]},
        "level-old": {"trace_level": ["MIN"]},
        "level-empty": {"trace_level": []},
        "level-number": {"trace_level": 1},
        "rate": {"trace_rate": "10"},
        "rate-number": {"trace_rate": 10},
        "rate-list": {"trace_rate": ["10"]},
        "rate-zero": {"trace_rate": "0"},
        "rate-negative": {"trace_rate": "-1"},
        "rate-text": {"trace_rate": "often"},
        "rate-huge": {"trace_rate": "99999999999999999999"},
        "rate-fraction": {"trace_rate": "1.5"},
        "count": {"trace_count": "5"},
        "count-negative": {"trace_count": "-1"},
        "count-more-negative": {"trace_count": "-5"},
        "count-text": {"trace_count": "x"},
        "frequency": {"log_frequency": "7"},
        "frequency-negative": {"log_frequency": "-7"},
        "file": {"trace_file": "/tmp/x"},
        "mode": {"trace_mode": "opentelemetry"},
        "unknown": {"colour": "red"},
        "several": {"trace_rate": "3", "trace_level": ["TIMESTAMPS"], "trace_count": "9"},
        "good-and-bad": {"trace_rate": "3", "trace_count": "x"},
    }
    cases = [Case(f"trace-{id}", (_setting(rows), _shown(), back, _shown())) for id, rows in values.items()]
    cases += [
        Case(
            f"trace-model-{id}",
            (_setting(rows, "plain"), _shown("plain"), _shown(), model_back, _shown("plain")),
            ("plain",),
        )
        for id, rows in values.items()
        if id in ("level-list", "rate", "count", "frequency", "rate-text", "several")
    ]
    lists: dict[str, dict[str, list[str]]] = {
        "level": {"trace_level": ["TIMESTAMPS"]},
        "level-clear": {"trace_level": []},
        "rate": {"trace_rate": ["10"]},
        "rate-two": {"trace_rate": ["10", "11"]},
        "rate-text": {"trace_rate": ["often"]},
        "rate-huge": {"trace_rate": ["99999999999999999999"]},
        "count": {"trace_count": ["5"]},
        "frequency": {"log_frequency": ["7"]},
        "file": {"trace_file": ["/tmp/x"]},
        "mode": {"trace_mode": ["opentelemetry"]},
        "unknown": {"colour": ["red"]},
        "nothing": {},
    }
    cases += [Case(f"trace-grpc-{id}", (_setting_grpc(rows), back, _setting_grpc({}))) for id, rows in lists.items()]
    return [
        *cases,
        Case(
            "trace-inherits",
            (
                _setting({"trace_rate": "5"}),
                _shown("plain"),
                _setting({"trace_rate": "6"}, "plain"),
                _setting({"trace_rate": "7"}),
                _shown("plain"),
                model_back,
                _shown("plain"),
                back,
                _shown("plain"),
            ),
            ("plain",),
        ),
        Case(
            "trace-unknown-model",
            (_shown("nobody"), _setting({"trace_rate": "5"}, "nobody"), _setting_grpc({}, "nobody")),
        ),
        Case("trace-unloaded-model", (_shown("life_never"), _setting_grpc({}, "life_never"))),
        *(
            Case(f"trace-body-{id}", (Http("POST", "/v2/trace/setting", body),))
            for id, body in (("empty", b""), ("not-json", b"hello"), ("array", b"[]"), ("empty-object", b"{}"))
        ),
    ]


def _log_grpc(**settings: Any) -> Grpc:
    message = pb.LogSettingsRequest()
    for name, value in settings.items():
        kind = "bool_param" if isinstance(value, bool) else "uint32_param" if isinstance(value, int) else "string_param"
        setattr(message.settings[name], kind, value)
    return Grpc("LogSettings", message)


def _logs() -> list[Case]:
    def post(value: Any) -> Http:
        return Http("POST", "/v2/logging", value if isinstance(value, bytes) else json.dumps(value).encode())

    shown = Http("GET", "/v2/logging")
    back = post(
        {"log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0, "log_format": "default"}
    )
    values: dict[str, Any] = {
        "info": {"log_info": False},
        "warning": {"log_warning": False},
        "error": {"log_error": False},
        "verbose": {"log_verbose_level": 1},
        "format": {"log_format": "ISO8601"},
        "format-unknown": {"log_format": "pretty"},
        "format-lower": {"log_format": "iso8601"},
        "format-number": {"log_format": 1},
        "file": {"log_file": "/tmp/x"},
        "file-empty": {"log_file": ""},
        "info-text": {"log_info": "no"},
        "info-number": {"log_info": 1},
        "info-null": {"log_info": None},
        "verbose-text": {"log_verbose_level": "1"},
        "verbose-negative": {"log_verbose_level": -1},
        "verbose-fraction": {"log_verbose_level": 1.5},
        "verbose-bool": {"log_verbose_level": True},
        "unknown": {"colour": "red"},
        "several": {"log_info": False, "log_verbose_level": 2, "log_format": "ISO8601"},
        "good-and-bad": {"log_info": False, "log_format": "pretty"},
        "nothing": {},
        "array": [],
        "not-json": b"hello",
        "empty": b"",
    }
    cases = [Case(f"logging-{id}", (post(value), shown, back)) for id, value in values.items()]
    of_grpc: dict[str, dict[str, Any]] = {
        "nothing": {},
        "info": {"log_info": False},
        "verbose": {"log_verbose_level": 1},
        "format": {"log_format": "ISO8601"},
        "format-unknown": {"log_format": "pretty"},
        "file": {"log_file": "/tmp/x"},
        "info-text": {"log_info": "no"},
        "verbose-text": {"log_verbose_level": "1"},
        "unknown": {"colour": "red"},
    }
    return cases + [Case(f"logging-grpc-{id}", (_log_grpc(**rows), shown, back)) for id, rows in of_grpc.items()]


CASES_STATISTICS = flat(_statistics())
CASES_SETTINGS = flat(_traces(), _logs())
