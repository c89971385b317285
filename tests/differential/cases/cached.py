"""The response cache: what is answered from it, and what its statistics and metrics say."""

from __future__ import annotations

from typing import Any

from tests.differential.models import KEPT_CONFIG
from tests.differential.steps import Case, Http, Metrics, Step, Write
from tests.differential.tensors import FORMS, Out, T, flat, step
from tests.differential.views import times

_STATS = Http("GET", "/v2/models/kept/stats", view=times, eventually=True)


def _ask(*values: int, form: str = "json", shape: list[int] | None = None, out: str = "", **more: Any) -> Step:
    tensor = T("IN", "INT32", shape or [1, len(values)], list(values))
    return step(form, "kept", [tensor], [Out(out)] if out else None, **more)


def _case(id: str, *steps: Step) -> Case:
    return Case(f"kept-{id}", steps, ("kept",), fresh=True, profile="caching")


def _answers() -> list[Case]:
    return [
        *(
            _case(f"again-{form}", _ask(100, number, form=form), _ask(100, number, form=form), _STATS)
            for number, form in enumerate(FORMS)
        ),
        _case("across-forms", *(_ask(3, 4, form=form) for form in FORMS), _STATS),
        _case("other-values", _ask(5), _ask(6), _ask(5), _STATS),
        _case("other-id", _ask(7, id="a"), _ask(7, id="b"), _ask(7, form="raw", id="c")),
        _case("other-priority", _ask(8, parameters={"priority": 1}), _ask(8, parameters={"timeout": 5_000_000})),
        _case("some-outputs", _ask(9, out="NUMBER"), _ask(9, out="NUMBER"), _STATS),
        _case("no-elements", _ask(shape=[1, 0]), _ask(shape=[1, 0]), _STATS),
        _case("too-large", _ask(*range(5000), form="raw"), _ask(*range(5000), form="raw"), _STATS),
        _case("metrics", _ask(10), _ask(10), _ask(11), Metrics(("kept",))),
        Case(
            "kept-not-asked",
            (
                step("json", "plain", [T("IN", "INT32", [1, 1], [1])]),
                step("json", "plain", [T("IN", "INT32", [1, 1], [1])]),
                Http("GET", "/v2/models/plain/stats", view=times, eventually=True),
                Metrics(("plain",)),
            ),
            ("plain",),
            fresh=True,
            profile="caching",
        ),
    ]


def _safer_here() -> list[Case]:
    return [
        _case("other-shape", _ask(1, 2, 3, 4, shape=[4, 1]), _ask(1, 2, 3, 4, shape=[2, 2]), _STATS),
        _case("other-parameters", _ask(20, parameters={"p": 1}), _ask(20, parameters={"p": 2}), _STATS),
        _case("other-outputs", _ask(21), _ask(21, out="NUMBER"), _STATS),
        _case("an-error", _ask(-1), _ask(-1), _STATS),
        _case("a-sequence", _ask(22, parameters={"sequence_id": 5}), _ask(22, parameters={"sequence_id": 5}), _STATS),
        _case(
            "reloaded",
            _ask(23),
            Write("kept/config.pbtxt", KEPT_CONFIG + "parameters { key: 'new' value { string_value: 'yes' } }\n"),
            Http("POST", "/v2/repository/models/kept/load"),
            _ask(24),
            _ask(23),
            Write("kept/config.pbtxt", KEPT_CONFIG),
            Http("POST", "/v2/repository/models/kept/load"),
        ),
    ]


CASES = flat(_answers(), _safer_here())
