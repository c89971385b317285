"""Sequences: what a model sees of them, where they wait, how they end, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tests.differential.steps import Case, Http, Stream, Together
from tests.differential.tensors import Out, T, flat, grpc_raw, http_json, infer_message
from tests.differential.views import only

# so long that the next call is there while it runs, begun so far apart
_LONG, _APART = 500, 0.08


def _parameters(key: int | str, flags: str, **more: Any) -> dict[str, Any]:
    """``flags``: S for START, E for END."""
    return {"sequence_id": key, "sequence_start": "S" in flags, "sequence_end": "E" in flags, **more}


def _step(model: str, key: int | str, flags: str = "", value: int | list[int] = 0, **more: Any) -> Http:
    values = value if isinstance(value, list) else [value]
    shape = [len(values)] if "flat" in model else [1, len(values)]
    return http_json(model, [T("IN", "INT32", shape, values)], parameters=_parameters(key, flags, **more))


def _step_grpc(model: str, key: int | str, flags: str = "", value: int = 0, **more: Any) -> Any:
    return grpc_raw(model, [T("IN", "INT32", [1, 1], [value])], parameters=_parameters(key, flags), **more)


def _case(model: str, name: str, *steps: Any, fresh: bool = False) -> Case:
    """All sequences end in their case, so that the next one finds all slots free."""
    return Case(f"{model}-{name}", steps, (model,), fresh=fresh)


def _together(*calls: Any) -> Together:
    return Together(calls, _APART)


def _on_any_instance(step: Http) -> Http:
    """Leave out of what a model saw which of its instances saw it: chance decides which is there first."""

    def view(answer: dict[str, Any]) -> dict[str, Any]:
        for output in answer["json"].get("outputs", ()):
            output["data"] = [re.sub(r'^\["\w+"', '["<instance>"', text) for text in output["data"]]
        return answer

    return replace(step, view=view)


def _batches(model: str) -> Http:
    view = only("model_stats")

    def counts(answer: dict[str, Any]) -> dict[str, Any]:
        row = view(answer)["json"]["model_stats"][0]
        batches = {str(b["batch_size"]): b["compute_infer"]["count"] for b in row["batch_stats"]}
        return {"executions": row["execution_count"], "inferences": row["inference_count"], "batches": batches}

    return Http("GET", f"/v2/models/{model}/stats", view=counts, eventually=True)


def _direct() -> list[Case]:
    d, two, share = "rows_direct", "rows_two", "rows_share"
    return [
        _case(
            d,
            "gaps",
            *(_step(d, id, "S") for id in (1, 2, 3)),
            _step(d, 3),
            _step(d, 2, "E"),
            _step(d, 3),
            _step(d, 4, "S"),
            _step(d, 1, "E"),
            _step(d, 4, "E"),
            _step(d, 3, "E"),
            _batches(d),
            fresh=True,
        ),
        _case(
            d,
            "together",
            _together(_step(d, 1, "S", _LONG), _step(d, 1, "E"), _step(d, 2, "S"), _step(d, 3, "SE")),
            _step(d, 2, "E"),
        ),
        _case(
            d,
            "start-on-live",
            _together(_step(d, 1, "S", _LONG), _step(d, 1), _step(d, 1, "S"), _step(d, 1)),
            _step(d, 1, "E"),
        ),
        _case(d, "start-after-end", _together(_step(d, 1, "S", _LONG), _step(d, 1, "E"), _step(d, 1, "SE"))),
        _case(
            d,
            "backlog",
            *(_step(d, id, "S") for id in (1, 2, 3, 4)),
            _together(_step(d, 5, "S", timeout=300_000), _step(d, 5, "E"), _step(d, 1)),
            _step(d, 5),
            _together(_step(d, 6, "S"), _step(d, 3, "E")),
            *(_step(d, id, "E") for id in (1, 2, 4, 6)),
        ),
        _case("rows_neither", "one", _step("rows_neither", 1, "SE")),
        _case(
            "rows_shapes",
            "apart",
            _together(
                _step("rows_shapes", 1, "S", [_LONG, 0]),
                _step("rows_shapes", 1, "E", [0, 0]),
                _step("rows_shapes", 2, "SE", [0, 0, 0]),
                _step("rows_shapes", 3, "SE", [0, 1]),
            ),
        ),
        _case(
            share,
            "waits",
            _step(share, 1, "S"),
            _together(_step(share, 1), _step(share, 2, "S")),
            _together(_step(share, 2, "E"), _step(share, 1, "E")),
        ),
        _case(
            "rows_idle",
            "gives-up",
            Together((_step("rows_idle", 1, "S"), _step("rows_idle", 1)), 2.0),
            _step("rows_idle", 2, "SE"),
        ),
        _case(
            two,
            "both",
            *(_on_any_instance(_step(two, id, flag)) for flag in "SE" for id in (1, 2, 3, 4)),
        ),
        _case("rows_flat", "one", _step("rows_flat", 1, "S"), _step("rows_flat", 1, "E"), _step("rows_flat", 1)),
    ]


def _oldest() -> list[Case]:
    o, one, preferred = "rows_oldest", "rows_one", "rows_preferred"
    return [
        _case(
            o,
            "batches",
            _together(_step(o, 1, "S", _LONG), _step(o, 2, "S"), _step(o, 3, "SE")),
            _step(o, 1, "E"),
            _step(o, 2, "E"),
            _batches(o),
            fresh=True,
        ),
        _case(
            o,
            "start-on-live",
            _together(_step(o, 1, "S", _LONG), _step(o, 1), _step(o, 1, "S"), _step(o, 1)),
            _step(o, 1, "E"),
        ),
        _case(
            one,
            "backlog",
            _step(one, 1, "S"),
            _together(_step(one, 2, "S"), _step(one, 2, "E"), _step(one, 3, "SE"), _step(one, 1, "E")),
        ),
        _case(
            one,
            "expires",
            _step(one, 1, "S"),
            _together(_step(one, 2, "S", timeout=400_000), _step(one, 2), _step(one, 2, "E")),
            _step(one, 2),
            _step(one, 1, "E"),
        ),
        _case(
            preferred,
            "sizes",
            _step(preferred, 1, "S"),
            _together(_step(preferred, 1), _step(preferred, 2, "S")),
            _together(_step(preferred, 1, "E"), _step(preferred, 2, "E")),
        ),
        _case(
            "rows_oldest_flat",
            "alone",
            *(_step("rows_oldest_flat", id, "S") for id in (1, 2)),
            *(_step("rows_oldest_flat", id, "E") for id in (1, 2)),
        ),
    ]


def _controls() -> list[Case]:
    wide = 2**40 + 7
    typed = [
        _case(model, "typed", _step(model, wide, "S"), _step(model, wide), _step(model, wide, "E"))
        for model in ("rows_floats", "rows_bools", "rows_signed")
    ]
    text = "rows_text"
    return [
        *typed,
        _case(text, "id", _step(text, "hello", "S"), _step(text, "x" * 128, "S"), _step(text, "hello", "E")),
        _case(text, "id-grpc", _step_grpc(text, "hello", "S"), _step_grpc(text, "hello", "E")),
        _case(text, "id-long", _step_grpc(text, "x" * 129, "S")),
        _case(text, "id-number", _step(text, 7, "S")),
        _case("rows_direct", "id-text", _step("rows_direct", "hello", "SE"), _step_grpc("rows_direct", "hello", "SE")),
    ]


def _refused() -> list[Case]:
    d = "rows_direct"
    two_rows = [T("IN", "INT32", [2, 1], [0, 0])]
    stream = Stream(
        (
            infer_message(d, [T("IN", "INT32", [1, 1], [0])], id="first", parameters=_parameters(9, "")),
            infer_message(d, [T("IN", "INT32", [1, 1], [0])], id="second", parameters=_parameters(9, "S")),
            infer_message(d, [T("IN", "INT32", [1, 1], [0])], id="third"),
            infer_message(d, two_rows, id="fourth", parameters=_parameters(9, "")),
            infer_message(d, [T("IN", "INT32", [1, 1], [0])], id="fifth", parameters=_parameters(9, "E")),
        ),
        sort=True,
    )
    return [
        _case(d, "no-start-grpc", _step_grpc(d, 7), _step_grpc(d, 7, id="named")),
        _case(
            d,
            "no-start-named",
            http_json(d, [T("IN", "INT32", [1, 1], [0])], id="named", parameters=_parameters(7, "")),
        ),
        _case(d, "no-id-grpc", _step_grpc(d, 0, "S"), _step_grpc(d, "", "S")),
        _case(d, "two-rows-grpc", grpc_raw(d, two_rows, parameters=_parameters(7, "S"))),
        _case(d, "errors-on-stream", stream),
    ]


def _passes() -> list[Case]:
    def cases(model: str) -> list[Case]:
        def plain(value: int) -> Http:
            return http_json(model, [T("IN", "INT32", [1, 1], [value])])

        return [
            _case(model, "once", plain(1)),
            _case(model, "many", plain(3), plain(2)),
            _case(model, "grpc", grpc_raw(model, [T("IN", "INT32", [1, 1], [4])])),
            _case(model, "named", _step(model, 55, "S", 2), _step(model, 55, "", 2), _step(model, 55, "S", 1)),
            _case(model, "side-by-side", Together(tuple(plain(value) for value in (3, 2, 4)), 0.0)),
        ]

    again = http_json("passes_oldest", [T("IN", "INT32", [1, 1], [101])])
    return [
        *cases("passes_oldest"),
        *cases("passes_direct"),
        _case("passes_oldest", "answer-and-again", again),
    ]


def _keeps() -> list[Case]:
    def sums(model: str, *outputs: str) -> Case:
        wanted = [Out(name) for name in outputs] or None
        steps = [
            http_json(model, [T("IN", "INT32", [1, 1], [value])], wanted, parameters=_parameters(1, flags))
            for value, flags in ((3, "S"), (4, ""), (10, "S"), (1, "E"))
        ]
        return _case(model, "-".join(["sum", *outputs]), *steps)

    return [sums("keeps"), sums("keeps_seen"), sums("keeps_seen", "OUT"), sums("keeps_seen", "NEW")]


CASES = flat(_direct(), _oldest(), _controls(), _refused(), _passes(), _keeps())
