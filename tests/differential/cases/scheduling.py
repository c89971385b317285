"""Queues, timeouts, priorities, batches; sequences, ensembles and other things that wait for later issues."""

from __future__ import annotations

from typing import Any

from tests.differential.cases.infer import ONES, PLAIN
from tests.differential.steps import Case, Http, Stream, Together
from tests.differential.tensors import Out, T, flat, grpc_raw, http_json, infer_cases, infer_message
from tests.differential.views import only, times


def _sleep(model: str, seconds: float, **more: Any) -> Any:
    return http_json(model, [T("SECONDS", "FP32", [1, 1], [seconds])], **more)


def _sleep_grpc(model: str, seconds: float, **more: Any) -> Any:
    return grpc_raw(model, [T("SECONDS", "FP32", [1, 1], [seconds])], **more)


def _batches(model: str) -> Http:
    view = only("model_stats")

    def counts(answer: dict[str, Any]) -> dict[str, Any]:
        row = view(answer)["json"]["model_stats"][0]
        batches = {str(b["batch_size"]): b["compute_infer"]["count"] for b in row["batch_stats"]}
        return {"executions": row["execution_count"], "batches": batches}

    return Http("GET", f"/v2/models/{model}/stats", view=counts, eventually=True)


def _queues() -> list[Case]:
    slow, quick = 0.9, 0.0

    def case(id: str, model: str, *calls: Any, apart: float = 0.1, **more: Any) -> Case:
        return Case(f"queue-{id}", (Together(calls, apart),), (model,), **more)

    queue = "sleep_queue"
    return [
        case(
            "full",
            queue,
            _sleep(queue, slow),
            _sleep(queue, quick),
            _sleep(queue, quick, id="third"),
            _sleep(queue, quick),
        ),
        case(
            "full-grpc",
            queue,
            _sleep_grpc(queue, slow),
            _sleep_grpc(queue, quick),
            _sleep_grpc(queue, quick, id="third"),
        ),
        case("timeout", "sleep_timeout", _sleep("sleep_timeout", slow), _sleep("sleep_timeout", quick, id="late")),
        case("timeout-grpc", "sleep_timeout", _sleep_grpc("sleep_timeout", slow), _sleep_grpc("sleep_timeout", quick)),
        case(
            "timeout-shorter",
            "sleep_timeout",
            _sleep("sleep_timeout", slow),
            _sleep("sleep_timeout", quick, parameters={"timeout": 1000}),
        ),
        case(
            "timeout-longer",
            "sleep_timeout",
            _sleep("sleep_timeout", slow),
            _sleep("sleep_timeout", quick, parameters={"timeout": 10_000_000}),
        ),
        case("timeout-ignored", "sleep", _sleep("sleep", slow), _sleep("sleep", quick, parameters={"timeout": 1000})),
        case(
            "timeout-without-policy",
            "sleep_batching",
            _sleep("sleep_batching", slow),
            _sleep("sleep_batching", quick, parameters={"timeout": 1000}),
        ),
        Case(
            "queue-batch",
            (Together(tuple(_sleep("sleep_batching", 0.6) for _ in range(5)), 0.05), _batches("sleep_batching")),
            ("sleep_batching",),
            fresh=True,
        ),
        Case(
            "queue-no-batch",
            (Together(tuple(_sleep("sleep", 0.1) for _ in range(4)), 0.0), _batches("sleep")),
            ("sleep",),
            fresh=True,
        ),
        *(
            case(
                f"priority-{p}",
                "sleep_priority",
                _sleep("sleep_priority", 0.3),
                _sleep("sleep_priority", quick, parameters={"priority": p}),
            )
            for p in (0, 1, 3, 9)
        ),
        Case(
            "queue-timeout-stats",
            (
                Together((_sleep("sleep_timeout", slow), _sleep("sleep_timeout", quick)), 0.1),
                Http("GET", "/v2/models/sleep_timeout/stats", view=times, eventually=True),
            ),
            ("sleep_timeout",),
            fresh=True,
        ),
        Case(
            "queue-full-stats",
            (
                Together((_sleep(queue, slow), _sleep(queue, quick), _sleep(queue, quick)), 0.1),
                Http("GET", f"/v2/models/{queue}/stats", view=times, eventually=True),
            ),
            (queue,),
            fresh=True,
        ),
    ]


def _sequences() -> list[Case]:
    def step(model: str, value: int, id: Any, start: bool = False, end: bool = False, grpc: bool = False) -> Any:
        parameters = {"sequence_id": id, "sequence_start": start, "sequence_end": end}
        make = grpc_raw if grpc else http_json
        return make(model, [T("IN", "INT32", [1, 1], [value])], parameters=parameters)

    def message(value: int, id: Any, start: bool = False, end: bool = False) -> Any:
        parameters = {"sequence_id": id, "sequence_start": start, "sequence_end": end}
        return infer_message("sequence_oldest", [T("IN", "INT32", [1, 1], [value])], parameters=parameters)

    cases: list[Case] = []
    for model in ("sequence_direct", "sequence_oldest"):
        plain = http_json(model, [T("IN", "INT32", [1, 1], [1])])

        def case(id: str, *steps: Any, model: str = model) -> Case:
            return Case(f"{model}-{id}", steps, (model,))

        cases += [
            case("sum", step(model, 1, 11, start=True), step(model, 2, 11), step(model, 3, 11, end=True)),
            case(
                "sum-grpc",
                step(model, 1, 12, start=True, grpc=True),
                step(model, 2, 12, grpc=True),
                step(model, 3, 12, end=True, grpc=True),
            ),
            case(
                "two",
                step(model, 1, 13, start=True),
                step(model, 10, 14, start=True),
                step(model, 2, 13, end=True),
                step(model, 20, 14, end=True),
            ),
            case("single", step(model, 5, 15, start=True, end=True)),
            case("no-start", step(model, 1, 16)),
            case("after-end", step(model, 1, 17, start=True, end=True), step(model, 2, 17)),
            case(
                "start-again",
                step(model, 1, 18, start=True),
                step(model, 5, 18, start=True),
                step(model, 1, 18, end=True),
            ),
            case("no-id", plain),
            case("id-zero", step(model, 1, 0, start=True)),
            case("long-id", step(model, 1, "x" * 129, start=True)),
            case(
                "batch",
                http_json(
                    model, [T("IN", "INT32", [2, 1], [1, 2])], parameters={"sequence_id": 19, "sequence_start": True}
                ),
            ),
            case(
                "control-as-input",
                http_json(
                    model,
                    [T("IN", "INT32", [1, 1], [1]), T("START", "INT32", [1, 1], [1])],
                    parameters={"sequence_id": 20, "sequence_start": True},
                ),
            ),
        ]
    stream = Stream((message(1, 31, start=True), message(2, 31), message(3, 31, end=True)))
    return [*cases, Case("sequence_oldest-stream", (stream,), ("sequence_oldest",))]


def _ensembles() -> list[Case]:
    inputs = [T("A", "FP32", [2, 16], ONES * 2), T("B", "FP32", [2, 16], [2.0] * 32)]
    text = ["good", "NOT_FOUND", "raise"]
    return flat(  # type: ignore[return-value]
        infer_cases("ensemble", "ensemble", inputs, [Out("SUM"), Out("TWICE")], models=("add_sub", "ensemble")),
        infer_cases("ensemble-one-output", "ensemble", inputs, [Out("TWICE")], models=("add_sub", "ensemble")),
        infer_cases("ensemble-skips-steps", "ensemble", inputs, [Out("SUM")], models=("add_sub", "ensemble")),
        infer_cases(
            "ensemble-id",
            "ensemble",
            inputs,
            [Out("SUM")],
            request_id="e 1",
            models=("add_sub", "ensemble"),
        ),
        infer_cases("ensemble-missing-input", "ensemble", inputs[:1], models=("add_sub", "ensemble")),
        infer_cases(
            "ensemble-batch-size",
            "ensemble",
            [T(t.name, "FP32", [9, 16], ONES * 9) for t in inputs],
            models=("add_sub", "ensemble"),
        ),
        infer_cases(
            "ensemble-unknown-output",
            "ensemble",
            inputs,
            [Out("difference")],
            models=("add_sub", "ensemble"),
        ),
        *(
            infer_cases(
                f"ensemble-failing-{how}",
                "ensemble_failing",
                [T("HOW" if how == "x" else "IN", "BYTES", [1], [how])],
                models=("failing", "ensemble_failing"),
            )
            for how in text
        ),
        *(
            Case(
                f"ensemble-repeat-{count}",
                (Stream((infer_message("ensemble_repeat", [T("IN", "INT32", [1], [count])]),)),),
                ("repeat", "ensemble_repeat"),
            )
            for count in (0, 1, 3)
        ),
        infer_cases(
            "ensemble-decoupled-unary",
            "ensemble_repeat",
            [T("IN", "INT32", [1], [1])],
            models=("repeat", "ensemble_repeat"),
        ),
        Case(
            "ensemble-absent-model",
            (
                Http("POST", "/v2/repository/models/ensemble_absent/load"),
                Http("GET", "/v2/models/ensemble_absent/ready"),
            ),
        ),
        Case(
            "ensemble-stats",
            (http_json("ensemble", inputs), Http("GET", "/v2/models/ensemble/stats", view=times, eventually=True)),
            ("ensemble",),
            fresh=True,
        ),
    )


def _calls_of_models() -> list[Case]:
    def ask(name: str) -> list[T]:
        return [T("MODEL", "BYTES", [1], [name])]

    return flat(  # type: ignore[return-value]
        infer_cases("bls", "bls", ask("add_sub"), forms=("json", "raw"), models=("add_sub", "bls")),
        infer_cases("bls-unknown", "bls", ask("nobody"), forms=("json", "raw"), models=("bls",)),
        infer_cases("bls-wrong", "bls", ask("plain"), forms=("json", "raw"), models=("plain", "bls")),
        infer_cases("bls-decoupled", "bls", ask("repeat"), forms=("json", "raw"), models=("repeat", "bls")),
        infer_cases("cached", "cached", PLAIN, forms=("json", "raw")),
    )


CASES_QUEUES = flat(_queues())
CASES_LATER = flat(_sequences(), _ensembles(), _calls_of_models())
