"""The Python backend seen from outside: errors of models, parameters of responses, senders, deaths, streams."""

from __future__ import annotations

import json
from typing import Any

from tests.differential.cases.infer import PLAIN
from tests.differential.steps import Case, Http, Step, Stream
from tests.differential.tensors import T, flat, grpc_raw, http_json, infer_cases, infer_message
from tests.differential.views import only

_BOTH = ("json", "raw")


def _how(value: str) -> list[T]:
    return [T("HOW", "BYTES", [1], [value])]


def _failures() -> list[Case]:
    ways = (
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARG",
        "UNAVAILABLE",
        "UNSUPPORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
        "default",
        "empty message",
        "error and outputs",
        "raise",
        "raise triton",
        "raise nothing",
        "raise unicode",
        "none",
        "text",
        "no outputs",
        "unknown output",
        "wrong type",
        "wrong shape",
        "twice",
        "complex",
        "list",
        "too few",
        "good",
    )
    return [case for way in ways for case in infer_cases(f"failing-{way}", "failing", _how(way), forms=_BOTH)]


def _deaths() -> list[Case]:
    cases = []
    good = http_json("dying", _how("good"))
    # the process is started again: here by itself, there by the next request
    unseen = Http(good.method, good.path, good.body, good.headers, view=lambda _: {})
    again = Http(good.method, good.path, good.body, good.headers, view=only("outputs"), eventually=True)
    for way in ("exit", "killed"):
        cases.append(Case(f"dying-{way}-http", (http_json("dying", _how(way)), unseen, again), ("dying",)))
        cases.append(Case(f"dying-{way}-grpc", (grpc_raw("dying", _how(way)), unseen, again), ("dying",)))
    return cases


def _response_parameters() -> list[Case]:
    sets: dict[str, Any] = {
        "text": {"a": "b", "empty": "", "unicode": "\u2603"},
        "numbers": {"int": 1, "negative": -(2**63), "large": 2**63 - 1},
        "bools": {"yes": True, "no": False},
    }
    return [
        case
        for id, value in sets.items()
        for case in infer_cases(
            f"response-parameters-{id}", "parameters", [T("IN", "BYTES", [1], [json.dumps(value)])], forms=_BOTH
        )
    ]


def _senders() -> list[Case]:
    ways = ("returned", "with flag", "flag after", "flag only", "twice", "after final", "error")
    cases = [case for way in ways for case in infer_cases(f"sender-{way}", "sender", _how(way), forms=_BOTH)]
    return cases + [
        Case(f"sender-{way}-stream", (Stream((infer_message("sender", _how(way), id="s1"),)),), ("sender",))
        for way in ways
    ]


def _message(count: int, how: str = "", id: str = "", model: str = "repeat", **parameters: Any) -> Any:
    inputs = [T("IN", "INT32", [1], [count])] + ([T("HOW", "BYTES", [1], [how])] if how else [])
    return infer_message(model, inputs, id=id, parameters=parameters)


def _stream(id: str, *messages: Any, models: tuple[str, ...] = ("repeat",), **more: Any) -> Case:
    of_case = {name: more.pop(name) for name in ("fatal", "difference") if name in more}
    return Case(f"stream-{id}", (Stream(messages, **more),), models, **of_case)


_EMPTY_FINAL = {"triton_enable_empty_final_response": True}
_STRICT = (("triton_grpc_error", "true"),)


def _streams() -> list[Case]:
    plain = infer_message("plain", PLAIN, id="p1")
    wrong = infer_message("plain", PLAIN[:1], id="w1")
    unknown = infer_message("nobody", PLAIN, id="u1")
    return [
        _stream("nothing-sent"),
        *(_stream(f"repeat-{count}", _message(count)) for count in (0, 1, 2, 5)),
        *(_stream(f"repeat-{count}-empty-final", _message(count, **_EMPTY_FINAL)) for count in (0, 1, 3)),
        _stream("empty-final-false", _message(2, triton_enable_empty_final_response=False)),
        _stream("empty-final-text", _message(2, triton_enable_empty_final_response="true")),
        _stream("empty-final-int", _message(2, triton_enable_empty_final_response=1)),
        _stream("flag-with-last", _message(3, "with the last")),
        _stream("flag-with-last-empty-final", _message(3, "with the last", **_EMPTY_FINAL)),
        _stream("id", _message(2, id="id 7", **_EMPTY_FINAL)),
        _stream("parameters", _message(3, "parameters")),
        _stream("no-outputs", _message(2, "no outputs")),
        _stream("error-last", _message(3, "error", id="e1")),
        _stream("error-last-empty-final", _message(3, "error", id="e1", **_EMPTY_FINAL)),
        _stream("error-first", _message(2, "error first", id="e1")),
        _stream("error-unavailable", _message(2, "unavailable")),
        _stream("error-only", _message(1, "error", id="e1")),
        _stream("two-requests", _message(2, id="a"), _message(3, id="b"), sort=True),
        _stream("batched", _message_batched()),
        _stream("plain", plain, models=("plain",)),
        _stream("plain-empty-final", infer_message("plain", PLAIN, parameters=_EMPTY_FINAL), models=("plain",)),
        _stream("plain-two", plain, infer_message("plain", PLAIN, id="p2"), models=("plain",)),
        _stream("plain-wrong", wrong, models=("plain",)),
        _stream("plain-wrong-then-good", wrong, plain, models=("plain",), sort=True),
        _stream("unknown-model", unknown, models=()),
        _stream("unknown-model-then-good", unknown, plain, models=("plain",), sort=True),
        _stream("unknown-version", infer_message("plain", PLAIN, version="9", id="v"), models=("plain",)),
        _stream("bad-version", infer_message("plain", PLAIN, version="abc", id="v"), models=("plain",)),
        _stream("reserved-parameter", infer_message("plain", PLAIN, parameters={"triton_x": 1}), models=("plain",)),
        _stream("bad-input", infer_message("plain", [*PLAIN, PLAIN[0]], id="b"), models=("plain",)),
        _stream("failing", infer_message("failing", _how("raise"), id="f"), models=("failing",)),
        _stream("failing-code", infer_message("failing", _how("NOT_FOUND"), id="f"), models=("failing",)),
        _stream("strict-good", plain, models=("plain",), metadata=_STRICT),
        _stream("strict-wrong", wrong, models=("plain",), metadata=_STRICT),
        _stream("strict-unknown-model", unknown, models=(), metadata=_STRICT),
        _stream("strict-failing", infer_message("failing", _how("UNAVAILABLE")), models=("failing",), metadata=_STRICT),
        _stream("strict-false", wrong, models=("plain",), metadata=(("triton_grpc_error", "false"),)),
        _stream("broken-message", b"\xff\xff\xff", models=()),
        _stream(
            "slow-then-quick",
            infer_message("sleep", [T("SECONDS", "FP32", [1, 1], [0.3])], id="slow"),
            plain,
            models=("plain", "sleep"),
            sort=True,
        ),
        _stream(
            "in-order",
            *(infer_message("sleep", [T("SECONDS", "FP32", [1, 1], [s])], id=f"s{s}") for s in (0.2, 0.0)),
            models=("sleep",),
        ),
        _stream(
            "deadline", infer_message("sleep", [T("SECONDS", "FP32", [1, 1], [1.0])]), models=("sleep",), timeout=0.2
        ),
    ]


def _message_batched() -> Any:
    return infer_message("repeat_batched", [T("IN", "INT32", [1, 1], [2])])


def _unary_decoupled() -> list[Case]:
    inputs = [T("IN", "INT32", [1], [1])]
    return [
        *infer_cases("decoupled-unary", "repeat", inputs),
        *infer_cases("decoupled-unary-wrong", "repeat", [T("X", "INT32", [1], [1])], forms=_BOTH),
        Case(
            "decoupled-metadata",
            (Http("GET", "/v2/models/repeat"), Http("GET", "/v2/models/repeat/ready")),
            ("repeat",),
        ),
    ]


def _generate(id: str, model: str, body: Any, *, verb: str = "generate", **headers: str) -> Case:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    step: Step = Http("POST", f"/v2/models/{model}/{verb}", content, sent)
    return Case(f"{verb}-{id}", (step,), () if model == "nobody" else (model,))


def _generates() -> list[Case]:
    both: list[Case] = []
    bodies: dict[str, tuple[str, Any]] = {
        "one": ("repeat", {"IN": 1}),
        "one-list": ("repeat", {"IN": [1]}),
        "three": ("repeat", {"IN": 3}),
        "zero": ("repeat", {"IN": 0}),
        "parameters-out": ("repeat", {"IN": 1, "HOW": "parameters"}),
        "error": ("repeat", {"IN": 1, "HOW": "error"}),
        "error-later": ("repeat", {"IN": 2, "HOW": "error"}),
        "error-unavailable": ("repeat", {"IN": 1, "HOW": "unavailable"}),
        "no-outputs": ("repeat", {"IN": 1, "HOW": "no outputs"}),
        "flag-with-last": ("repeat", {"IN": 1, "HOW": "with the last"}),
        "id": ("repeat", {"IN": 1, "id": "my id"}),
        "not-decoupled": ("plain", {"INPUT0": [1, 2, 3, 4], "INPUT1": [1, 1, 1, 1]}),
        "batched": ("add_sub", {"INPUT0": [1.5] * 16, "INPUT1": [1] * 16}),
        "text": ("text", {"IN": 'caf\u00e9 \u2603 "x"'}),
        "texts": ("texts", {"IN": ["a", "b"]}),
        "look": ("look", {"IN": [1, 2], "colour": "red", "n": 3, "yes": True, "id": "i", "f": 0.5}),
        "look-parameters": ("look", {"IN": 1, "parameters": {"colour": "red", "MORE": 2.5}}),
        "look-reserved": ("look", {"IN": 1, "sequence_id": 5, "priority": 2, "timeout": 100}),
        "look-triton": ("look", {"IN": 1, "triton_x": 1}),
        "look-nested": ("look", {"IN": 1, "x": {"y": 1}}),
        "look-list": ("look", {"IN": 1, "x": [1]}),
        "look-null": ("look", {"IN": 1, "x": None}),
        "nested": ("plain", {"INPUT0": [[1, 2], [3, 4]], "INPUT1": [1, 1, 1, 1]}),
        "wrong-count": ("plain", {"INPUT0": [1, 2, 3], "INPUT1": [1, 1, 1, 1]}),
        "wrong-type": ("plain", {"INPUT0": ["a"] * 4, "INPUT1": [1, 1, 1, 1]}),
        "missing": ("plain", {"INPUT0": [1, 2, 3, 4]}),
        "object": ("plain", {"INPUT0": {}, "INPUT1": [1, 1, 1, 1]}),
        "null": ("plain", {"INPUT0": None, "INPUT1": [1, 1, 1, 1]}),
        "matrix": ("raw_matrix", {"IN": [1, 2, 3, 4]}),
        "matrix-odd": ("raw_matrix", {"IN": [1, 2, 3]}),
        "two-variable": ("raw_two", {"IN": [1, 2, 3]}),
        "halves": ("halves", {"IN": [1, 2]}),
        "bool": ("types", {"IN_BOOL": [True, False]}),
        "failing": ("failing", {"HOW": "raise"}),
        "unknown-model": ("nobody", {"IN": 1}),
        "not-json": ("repeat", b"hello"),
        "array": ("repeat", b"[]"),
        "empty": ("repeat", b""),
        "empty-object": ("repeat", {}),
        "id-number": ("repeat", {"IN": 1, "id": 7}),
        "parameters-text": ("repeat", {"IN": 1, "parameters": "x"}),
    }
    for id, (model, body) in bodies.items():
        both += [_generate(id, model, body, verb=verb) for verb in ("generate", "generate_stream")]
    return [
        *both,
        _generate("gzip", "repeat", {"IN": 1}, Content_Encoding="gzip"),
        _generate("accept-gzip", "repeat", {"IN": 1}, Accept_Encoding="gzip"),
        _generate("accept-gzip", "repeat", {"IN": 2}, verb="generate_stream", Accept_Encoding="gzip"),
        _generate("version", "repeat/versions/1", {"IN": 1}),
        _generate("unknown-version", "repeat/versions/9", {"IN": 1}),
    ]


def _fix(cases: list[Case]) -> list[Case]:
    return [
        Case(case.id, case.steps, tuple(model.split("/")[0] for model in case.models), case.difference)
        for case in cases
    ]


CASES = flat(_failures(), _deaths(), _response_parameters(), _senders(), _unary_decoupled())
CASES_STREAMS = flat(_streams())
CASES_GENERATE = flat(_fix(_generates()))
