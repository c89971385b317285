"""Python models that ask other models: requests, errors, several responses, readiness and loading."""

from __future__ import annotations

import json
from typing import Any

from tests.differential.steps import Case, Http, Step, Stream
from tests.differential.tensors import T, flat, http_json, infer_message
from tests.differential.views import times

_OTHERS = ("add_sub", "look", "repeat", "failing")


def _how(value: str) -> list[T]:
    return [T("HOW", "BYTES", [1], [value])]


def _ask(way: str, *more: str, model: str = "calls", steps: tuple[Step, ...] = (), **of_case: Any) -> Case:
    id = f"calls-{way}" if model == "calls" else f"{model.replace('_', '-')}-{way}"
    return Case(id.replace(" ", "-"), (http_json(model, _how(way)), *steps), (*_OTHERS, *more, model), **of_case)


def _requests() -> list[Case]:
    ways = (
        *("exec", "version", "version-absent", "version-zero", "version-negative"),
        *("unknown-model", "unknown-model-version", "missing-input", "unknown-input", "input-twice", "no-inputs"),
        *("wrong-type", "wrong-shape", "large-batch", "many-rows", "not-contiguous", "same-request-twice"),
        *("unknown-output", "no-outputs", "output-twice", "one-output", "all-outputs"),
        *("id", "correlation-id", "correlation-text", "flags", "timeout", "timeout-large", "memory"),
        *("parameters", "parameters-large", "parameters-empty", "parameters-none", "parameters-float"),
        *("parameters-list", "parameters-reserved", "parameters-triton"),
        *("failing-good", "failing-NOT_FOUND", "failing-CANCELLED", "failing-default", "failing-empty message"),
        *("failing-raise", "failing-no outputs", "in-thread", "async-without-loop", "look-at-own"),
        *("decoupled-not-said", "decoupled-of-plain", "decoupled-0", "decoupled-1", "decoupled-3"),
        *("decoupled-no-outputs", "decoupled-with-the-last", "decoupled-twice", "decoupled-dropped"),
        *("decoupled-unknown-model", "decoupled-unknown-output"),
        *("one", "twenty", "three", "decoupled"),
        *(f"made-{what}-none" for what in ("input",)),
        *(f"made-{what}" for what in ("without-model", "without-inputs", "without-outputs", "id-number")),
        *(f"made-{what}" for what in ("correlation-float", "correlation-negative", "input-array", "output-empty")),
        *(f"made-{what}" for what in ("version-text", "priority")),
    )
    asyncs = ("one", "twenty", "three", "decoupled", "decoupled-not-said", "exec-amid", "unknown-model")
    return [
        *(_ask(way) for way in ways),
        _ask("texts", "text"),
        _ask("nested", "calls_pair"),
        _ask("sequence", "sequence_oldest"),
        _ask("sequence-no-start", "sequence_oldest"),
        _ask("ensemble", "ensemble"),
        *(_ask(way, "sleep", model="calls_async") for way in asyncs),
        _ask("any", model="calls_early"),
    ]


def _queues() -> list[Case]:
    return [
        *(_ask(way, "sleep_timeout") for way in ("queue-idle", "queue-timeout", "queue-timeout-shorter")),
        _ask("queue-full", "sleep_queue"),
    ]


def _statistics() -> list[Case]:
    def counted(model: str) -> Http:
        return Http("GET", f"/v2/models/{model}/stats", view=times, eventually=True)

    ways = {"counted": "counted", "counted-decoupled": "counted_repeat"}
    return [
        Case(f"calls-{way}", (http_json("calls_pair", _how(way)), counted(model)), (model, "calls_pair"), fresh=True)
        for way, model in ways.items()
    ]


def _streams() -> list[Case]:
    ways = {
        "calls_decoupled": ("exec", "thread exec", "thread decoupled-3", "three"),
        "calls_decoupled_async": ("one", "twenty", "three", "decoupled", "exec-amid"),
    }
    return [
        Case(
            f"{model.replace('_', '-')}-{way.replace(' ', '-')}",
            (Stream((infer_message(model, _how(way), id="s"),)),),
            (*_OTHERS, "sleep", model),
        )
        for model, all_of_them in ways.items()
        for way in all_of_them
    ]


def _control() -> list[Case]:
    def generate(way: str) -> Http:
        return Http("POST", "/v2/models/calls/generate", json.dumps({"HOW": way}).encode())

    ways = ("ready", "ready-version", "ready-by-name", "ready-number", "load-again", "load-config", "load-files")
    return [
        *(_ask(way, "plain") for way in (*ways, "unload", "unload-unknown", "unload-dependents")),
        *(_ask(way) for way in ("load-unknown", "load-broken")),
        Case("calls-generate", (generate("exec"),), (*_OTHERS, "calls")),
    ]


CASES = flat(_requests(), _queues(), _statistics(), _streams(), _control())
