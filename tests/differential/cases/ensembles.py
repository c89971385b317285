"""Ensembles: what steps get and give, which of them run, errors, decoupled steps, and their life with their models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.differential.cases.repository_life import index, load, unload
from tests.differential.ensemble_models import ensemble, step, tensor
from tests.differential.models import python
from tests.differential.steps import Case, Http, Remove, Step, Stream, Together, Until, Write
from tests.differential.tensors import Out, T, flat, grpc_raw, http_json, http_path, infer_cases, infer_message
from tests.differential.views import times, without_finals

_PAIR = [T("A", "INT32", [4], [10, 20, 30, 40]), T("B", "INT32", [4], [1, 2, 3, 4])]
_SIDES = ("part_left", "part_right", "part_last", "pipe_sides")
_FORKS = ("part_left", "part_right", "pipe_forks")


def _stats(*models: str) -> tuple[Http, ...]:
    return tuple(Http("GET", f"/v2/models/{model}/stats", view=times, eventually=True) for model in models)


def _inference() -> list[Case]:
    seen = [T("SEEN", "INT32", [2], [1, 2])]
    full = {"timeout": 12345, "priority": 3, "tenant": "a", "level": 4, "ratio": 0.5, "flag": True}
    sequence = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}

    look = {"models": ("look", "pipe_look")}
    return flat(
        infer_cases("pipe-sides", "pipe_sides", _PAIR, models=_SIDES),
        *(
            infer_cases(
                f"pipe-sides-{'-'.join(names)}", "pipe_sides", _PAIR, [Out(name) for name in names], models=_SIDES
            )
            for names in (("LEFT",), ("RIGHT",), ("BOTH",), ("BOTH", "LEFT"), ("RIGHT", "LEFT"))
        ),
        *(
            infer_cases(f"pipe-forks-{name}", "pipe_forks", _PAIR, [Out(name)], models=_FORKS)
            for name in ("LEFT", "RIGHT")
        ),
        infer_cases("pipe-sides-wrong-shape", "pipe_sides", [_PAIR[0], T("B", "INT32", [3], [1, 2, 3])], models=_SIDES),
        infer_cases("pipe-look", "pipe_look", seen, request_id="look 1", forms=("json", "raw"), **look),
        infer_cases("pipe-look-one", "pipe_look", seen, [Out("NUMBER")], forms=("json", "raw"), **look),
        infer_cases("pipe-look-text", "pipe_look", seen, [Out("TEXT")], forms=("json", "raw"), **look),
        infer_cases("pipe-look-parameters", "pipe_look", seen, parameters=full, forms=("json", "raw"), **look),
        infer_cases("pipe-look-sequence", "pipe_look", seen, parameters=sequence, forms=("json", "raw"), **look),
        infer_cases(
            "pipe-look-sequence-text",
            "pipe_look",
            seen,
            parameters={"sequence_id": "seven", "sequence_start": True},
            forms=("json", "raw"),
            **look,
        ),
        infer_cases("pipe-outer", "pipe_outer", _PAIR, models=("pipe_outer",)),
        infer_cases(
            "pipe-outer-failing", "pipe_outer_failing", [T("IN", "BYTES", [1], ["UNAVAILABLE"])], request_id="o",
            models=("pipe_outer_failing",),
        ),
        infer_cases("pipe-no-outputs", "ensemble_failing", [T("IN", "BYTES", [1], ["no outputs"])],
                    models=("ensemble_failing",), forms=("json", "raw")),
        infer_cases("pipe-unknown-output", "ensemble_failing", [T("IN", "BYTES", [1], ["unknown output"])],
                    models=("ensemble_failing",), forms=("json", "raw")),
        infer_cases("pipe-empty-message", "ensemble_failing", [T("IN", "BYTES", [1], ["empty message"])],
                    models=("ensemble_failing",), forms=("json", "raw")),
        infer_cases("pipe-wrong-type", "ensemble_failing", [T("IN", "BYTES", [1], ["wrong type"])],
                    models=("ensemble_failing",), forms=("json", "raw")),
        infer_cases("pipe-wrong-shape", "ensemble_failing", [T("IN", "BYTES", [1], ["wrong shape"])],
                    models=("ensemble_failing",), forms=("json", "raw")),
        infer_cases("pipe-two-texts", "ensemble_failing", [T("IN", "BYTES", [2], ["good", "good"])],
                    models=("ensemble_failing",)),
        *(
            infer_cases(f"pipe-flat-{rows}", "pipe_flat", [T("IN", "INT32", [rows, 4], range(rows * 4))],
                        models=("pipe_flat",), forms=("json", "raw"))
            for rows in (1, 2)
        ),
        *(
            infer_cases(f"pipe-matrix-{rows}", "pipe_matrix", [T("IN", "INT32", [rows, 4], range(rows * 4))],
                        models=("pipe_matrix",), forms=("json", "raw"))
            for rows in (1, 2)
        ),
        *(
            infer_cases(f"pipe-unbatched-{rows}", "pipe_unbatched", [T("IN", "INT32", [rows, 4], range(rows * 4))],
                        models=("pipe_unbatched",), forms=("json", "raw"))
            for rows in (1, 2, 9)
        ),
        infer_cases(
            "pipe-scores",
            "pipe_scores",
            [T("IN", "INT32", [2, 1], [1, 1])],
            [Out("BEST", {"classification": 3}), Out("PLAIN", {"classification": 2})],
            models=("pipe_scores",),
            forms=("json", "raw"),
        ),
    )  # fmt: skip


def _many() -> list[Case]:
    def message(model: str, count: int, how: str = "", **more: Any) -> Any:
        tensors = [T("IN", "INT32", [1], [count])]
        if how:
            tensors.append(T("HOW", "BYTES", [1], [how]))
        return infer_message(model, tensors, **more)

    def stream(id: str, *messages: Any, model: str = "pipe_many", **more: Any) -> Case:
        # which response of an ensemble says that it is the last one is a matter of chance
        return Case(f"pipe-many-{id}", (Stream(messages, view=without_finals, **more),), (model,))

    def generate(verb: str, id: str, **fields: Any) -> Case:
        body = json.dumps(fields).encode()
        call = Http("POST", http_path("pipe_many", verb=verb), body, {"Content-Type": "application/json"})
        return Case(f"pipe-many-{verb}-{id}", (call,), ("pipe_many",))

    return [
        *(stream(str(count), message("pipe_many", count, id="m")) for count in (0, 1, 3)),
        stream("with-the-last", message("pipe_many", 2, "with the last")),
        stream("no-outputs", message("pipe_many", 2, "no outputs")),
        stream("error-first", message("pipe_many", 1, "error first")),
        stream("two", message("pipe_many", 2, id="a"), message("pipe_many", 1, id="b"), sort=True),
        stream("many", message("pipe_many_many", 4), model="pipe_many_many", sort=True),
        stream("many-0", message("pipe_many_many", 1), model="pipe_many_many"),
        stream("failing", message("pipe_many_failing", 2, id="f"), model="pipe_many_failing"),
        stream("not-failing", message("pipe_many_failing", 1, id="f"), model="pipe_many_failing"),
        *infer_cases(
            "pipe-many-unary", "pipe_many", [T("IN", "INT32", [1], [1])], models=("pipe_many",), forms=("json", "raw")
        ),
        generate("generate", "one", IN=1),
        generate("generate_stream", "three", IN=3),
        generate("generate_stream", "error", IN=1, HOW="error first"),
        generate("generate_stream", "none", IN=0),
        Case(
            "pipe-many-stats",
            (Stream((message("pipe_many_counted", 3),), view=without_finals), *_stats("pipe_many_counted")),
            ("pipe_many_counted",),
        ),
    ]


def _queues() -> list[Case]:
    def sleep(model: str, seconds: float, make: Any = http_json, **more: Any) -> Any:
        return make(model, [T("SECONDS", "FP32", [1, 1], [seconds])], **more)

    def case(id: str, model: str, *calls: Any, then: tuple[Step, ...] = (), **more: Any) -> Case:
        return Case(f"pipe-queue-{id}", (Together(calls, 0.15), *then), (model,), **more)

    full = [sleep("pipe_queue", 0.9), sleep("pipe_queue", 0.0), sleep("pipe_queue", 0.0, id="third")]
    return [
        case("full", "pipe_queue", *full),
        case("full-grpc", "pipe_queue", *(sleep("pipe_queue", s, grpc_raw) for s in (0.9, 0.0, 0.0))),
        Case(
            "pipe-queue-full-stats",
            (Together(tuple(full), 0.15), *_stats("pipe_queue")),
            ("pipe_queue",),
            fresh=True,
        ),
        case(
            "timeout-shorter",
            "pipe_timeout",
            sleep("pipe_timeout", 0.9),
            sleep("pipe_timeout", 0.0, parameters={"timeout": 1000}),
        ),
    ]


def _statistics() -> list[Case]:
    def case(id: str, names: tuple[str, ...]) -> Case:
        asked = http_json("pipe_sides", _PAIR, [Out(name) for name in names] or None)
        return Case(f"pipe-stats-{id}", (asked, *_stats(*_SIDES)), _SIDES, fresh=True)

    failing = [T("IN", "BYTES", [1], ["UNAVAILABLE"])]
    return [
        case("all", ()),
        case("right", ("RIGHT",)),
        Case(
            "pipe-stats-forks",
            (http_json("pipe_forks", _PAIR, [Out("LEFT")]), *_stats(*_FORKS)),
            _FORKS,
            fresh=True,
        ),
        Case(
            "pipe-stats-batch",
            (
                http_json("pipe_unbatched", [T("IN", "INT32", [3, 4], range(12))]),
                *_stats("pipe_unbatched"),
            ),
            ("pipe_unbatched",),
            fresh=True,
        ),
        Case(
            "pipe-stats-rows",
            (http_json("pipe_scores", [T("IN", "INT32", [3, 1], [1, 1, 1])]), *_stats("pipe_scores")),
            ("pipe_scores",),
            fresh=True,
        ),
        Case(
            "pipe-stats-failing",
            (http_json("ensemble_failing", failing), *_stats("ensemble_failing")),
            ("ensemble_failing",),
            fresh=True,
        ),
        Case(
            "pipe-stats-wrong",
            (http_json("pipe_sides", _PAIR[:1]), *_stats("pipe_sides", "part_left")),
            _SIDES,
            fresh=True,
        ),
        *(
            Case(f"pipe-shown-{model}{verb.replace('/', '-')}", (Http("GET", f"/v2/models/{model}{verb}"),), (model,))
            for model in ("pipe_sides", "pipe_many", "pipe_outer", "pipe_look")
            for verb in ("", "/config", "/ready")
        ),
    ]


_ECHO = python("version", [tensor("input", "IN", "INT32", "1"), tensor("output", "OUT", "INT32", "1")])
_OTHER_TYPE = {
    **_ECHO,
    "config.pbtxt": _ECHO["config.pbtxt"].replace('"OUT" data_type: TYPE_INT32', '"OUT" data_type: TYPE_INT64'),
}
_BROKEN = {**_ECHO, "1/model.py": "raise RuntimeError('does not load')\n"}
_IO = [tensor("input", "IN", "INT32", "1"), tensor("output", "RESULT", "INT32", "1")]


def _over(*models: str, version: int = -1) -> dict[str, str]:
    """Return an ensemble in which each model follows the one before."""
    names = ["IN", *(f"t{number}" for number in range(1, len(models))), "RESULT"]
    steps = []
    for number, model in enumerate(models):
        ends = ("IN", "RESULT") if model.endswith("-e") else ("IN", "OUT")
        steps.append(step(model, {ends[0]: names[number]}, {ends[1]: names[number + 1]}, version))
    return ensemble(_IO, ", ".join(steps))


def _write(model: str, files: Mapping[str, str]) -> tuple[Write, ...]:
    return tuple(Write(f"{model}/{path}", text) for path, text in files.items())


_Place = Callable[[str], str]
_Made = Callable[[_Place], Step | tuple[Step, ...]]


def _own(id: str, files: Mapping[str, Mapping[str, str]], *steps: _Made) -> Case:
    """Return a case whose models have the case's own prefix, which also stands for ``MODEL_`` in their texts."""
    prefix = f"pipe-{id}-"
    played: list[Step] = []
    for name, content in files.items():
        played += _write(prefix + name, {path: text.replace("MODEL_", prefix) for path, text in content.items()})
    for one in steps:
        made = one(lambda name: prefix + name)
        played += made if isinstance(made, tuple) else (made,)
    return Case(f"pipe-life-{id}", tuple(played))


def rows(*names: str) -> _Made:
    return lambda place: index(*map(place, names))


def up(name: str) -> _Made:
    return lambda place: load(place(name))


def down(name: str, dependents: bool = False) -> _Made:
    body = b'{"parameters":{"unload_dependents":true}}' if dependents else b""
    return lambda place: unload(place(name), body)


def gone(name: str) -> _Made:
    return lambda place: Until(place(name), "UNAVAILABLE")


def ask(name: str, version: str = "") -> _Made:
    return lambda place: http_json(place(name), [T("IN", "INT32", [1], [1])], version=version)


def ready(name: str) -> _Made:
    return lambda place: Http("GET", http_path(place(name), verb="ready"))


def shown(name: str) -> _Made:
    return lambda place: tuple(Http("GET", http_path(place(name), verb=verb)) for verb in ("", "config"))


def stats(name: str) -> _Made:
    return lambda place: _stats(place(name))


def put(name: str, files: Mapping[str, str]) -> _Made:
    return lambda place: _write(place(name), files)


def away(name: str) -> _Made:
    return lambda place: Remove(place(name))


def _life() -> list[Case]:
    case = _own
    two = {"a": _ECHO, "b": _ECHO}
    newer = {"2/model.py": _ECHO["1/model.py"]}
    one = {"a": _ECHO, "e": _over("MODEL_a")}
    pair = {**two, "e": _over("MODEL_a", "MODEL_b")}
    return [
        case("load", pair, up("e"), rows("a", "b", "e"), ask("e"), ready("e"), shown("e")),
        case("unload", pair, up("e"), down("e"), gone("e"), rows("a", "b", "e"), ask("e"), ready("e")),
        case("dependents", pair, up("e"), down("e", True), gone("e"), gone("a"), gone("b"), rows("a", "b", "e")),
        case(
            "dependents-own", pair, up("a"), up("e"), down("e", True), gone("e"), gone("b"), rows("a", "b", "e")
        ),
        case(
            "dependents-later", pair, up("e"), up("a"), down("e", True), gone("e"), gone("b"), rows("a", "b", "e")
        ),
        case(
            "dependents-shared",
            {**pair, "f": _over("MODEL_b")},
            up("e"),
            up("f"),
            down("e", True),
            gone("e"),
            gone("a"),
            rows("a", "b", "e", "f"),
            ask("f"),
            down("f", True),
            gone("f"),
            gone("b"),
            rows("a", "b", "e", "f"),
        ),
        case(
            "part-unloaded",
            pair,
            up("e"),
            ask("e"),
            down("b"),
            gone("b"),
            gone("e"),
            rows("a", "b", "e"),
            ask("e"),
            ready("e"),
            shown("e"),
            up("b"),
            rows("a", "b", "e"),
            ask("e"),
            ready("e"),
        ),
        case(
            "part-unloaded-load",
            pair,
            up("e"),
            down("b"),
            gone("b"),
            gone("e"),
            up("e"),
            rows("a", "b", "e"),
            ask("e"),
        ),
        case("part-unloaded-dependents", one, up("e"), down("a", True), gone("a"), gone("e"), rows("a", "e")),
        case(
            "part-changed",
            one,
            up("e"),
            ask("e"),
            stats("e"),
            put("a", newer),
            up("a"),
            ask("e"),
            stats("e"),
            rows("e"),
        ),
        case("part-changed-load", one, up("e"), ask("e"), put("a", newer), up("e"), ask("e"), rows("e")),
        case(
            "part-unfit",
            one,
            up("e"),
            put("a", _OTHER_TYPE),
            up("a"),
            rows("a", "e"),
            ask("e"),
            ready("e"),
            put("a", _ECHO),
            up("a"),
            rows("a", "e"),
            ask("e"),
        ),
        case("part-broken", {"a": _BROKEN, "e": _over("MODEL_a")}, up("e"), rows("a", "e"), ask("e"), up("a")),
        case(
            "part-mended",
            {"a": _BROKEN, "e": _over("MODEL_a")},
            up("e"),
            put("a", _ECHO),
            up("a"),
            rows("a", "e"),
            up("e"),
            rows("a", "e"),
        ),
        case(
            "part-breaks", one, up("e"), put("a", _BROKEN), up("a"), rows("a", "e"), ask("e")
        ),
        case("part-missing", {"e": _over("MODEL_a")}, up("e"), rows("e"), put("a", _ECHO), up("a"), rows("a", "e")),
        case("part-missing-load", {"e": _over("MODEL_a")}, up("e"), put("a", _ECHO), up("e"), rows("a", "e"), ask("e")),
        case("parts-missing", {"e": _over("MODEL_b", "MODEL_a")}, up("e"), rows("e")),
        case(
            "part-unreadable",
            {"a": {**_ECHO, "config.pbtxt": "input {"}, "e": _over("MODEL_a")},
            up("e"),
            rows("a", "e"),
        ),
        case("part-deleted", one, up("e"), away("a"), up("e"), ask("e"), rows("a", "e")),
        case(
            "version",
            {"a": {**_ECHO, **newer}, "e": _over("MODEL_a", version=1)},
            up("e"),
            rows("a", "e"),
            put("a", {"config.pbtxt": _ECHO["config.pbtxt"] + "version_policy { all { } }\n"}),
            up("a"),
            rows("a", "e"),
            up("e"),
            rows("a", "e"),
            ask("e"),
        ),
        case(
            "version-zero", {"a": _ECHO, "e": _over("MODEL_a", version=0)}, up("e"), rows("a", "e"), ask("e")
        ),
        case("version-below", {"a": _ECHO, "e": _over("MODEL_a", version=-2)}, up("e"), rows("a", "e"), ask("e")),
        case(
            "version-goes",
            {"a": {**_ECHO, **newer, "config.pbtxt": _ECHO["config.pbtxt"] + "version_policy { all { } }\n"},
             "e": _over("MODEL_a", version=1)},
            up("e"),
            ask("e"),
            put("a", {"config.pbtxt": _ECHO["config.pbtxt"]}),
            up("a"),
            gone("e"),
            rows("e"),
            ask("e"),
        ),
        case("circle", {"d-e": _over("MODEL_f-e"), "f-e": _over("MODEL_d-e")}, up("d-e"), rows("d-e", "f-e")),
        case(
            "nested",
            {**one, "inner-e": _over("MODEL_a"), "outer": _over("MODEL_inner-e", "MODEL_a")},
            up("outer"),
            rows("a", "inner-e", "outer"),
            ask("outer"),
            down("a"),
            gone("a"),
            gone("inner-e"),
            gone("outer"),
            rows("a", "inner-e", "outer"),
            up("a"),
            rows("a", "inner-e", "outer"),
            ask("outer"),
        ),
        case(
            "nested-dependents",
            {**one, "inner-e": _over("MODEL_a"), "outer": _over("MODEL_inner-e")},
            up("outer"),
            down("outer", True),
            gone("outer"),
            gone("inner-e"),
            gone("a"),
            rows("a", "inner-e", "outer"),
        ),
        case(
            "nested-missing",
            {"inner-e": _over("MODEL_a"), "outer": _over("MODEL_inner-e")},
            up("outer"),
            rows("inner-e", "outer"),
        ),
        case("again", one, up("e"), ask("e"), up("e"), stats("e"), ask("e")),
        case(
            "changed",
            pair,
            up("e"),
            ask("e"),
            put("e", {"config.pbtxt": _over("MODEL_b")["config.pbtxt"].replace("MODEL_", "pipe-changed-")}),
            up("e"),
            stats("e"),
            down("a"),
            gone("a"),
            rows("a", "b", "e"),
            ask("e"),
        ),
        case(
            "no-version",
            {"a": _ECHO, "e": {"config.pbtxt": _over("MODEL_a")["config.pbtxt"]}},
            up("e"),
            rows("a", "e"),
        ),
        case(
            "two-versions",
            {"a": _ECHO, "e": {**_over("MODEL_a"), "3/.keep": "",
             "config.pbtxt": _over("MODEL_a")["config.pbtxt"] + "version_policy { all { } }\n"}},
            up("e"),
            rows("a", "e"),
            ask("e"),
            ask("e", "1"),
            ask("e", "2"),
            stats("e"),
        ),
        case(
            "override",
            one,
            up("a"),
            lambda place: load(
                place("e"),
                {"config": json.dumps({
                    "platform": "ensemble",
                    "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
                    "output": [{"name": "OTHER", "data_type": "TYPE_INT32", "dims": [1]}],
                    "ensemble_scheduling": {"step": [{
                        "model_name": place("a"), "model_version": -1,
                        "input_map": {"IN": "IN"}, "output_map": {"OUT": "OTHER"}}]},
                })},
            ),
            rows("a", "e"),
            ask("e"),
        ),
    ]  # fmt: skip


CASES = flat(_inference(), _many(), _queues(), _statistics())
CASES_LIFE = flat(_life())
