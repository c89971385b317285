"""What the module triton_python_backend_utils offers, used by one model.py on both servers: all but calls."""

from __future__ import annotations

from tests.differential.steps import Case, Http, Metrics, Until
from tests.differential.tensors import T, flat, http_json

_WAYS = (
    *("tensors", "dlpack", "bad-tensors", "converting", "errors", "responses", "completing", "logging"),
    *("surface", "constants", "imported", "request", "arguments"),
    *("counters", "gauges", "histograms", "deleted", "shared", "in-coroutine", "bad-metrics"),
)
SHOWN = ("counters", "gauges", "histograms", "shared")


def _how(value: str, model: str = "contract") -> Http:
    return http_json(model, [T("HOW", "BYTES", [1], [value])])


def _life() -> list[Case]:
    gone = Http("POST", "/v2/repository/models/contract_life/unload", b"{}")
    there = Metrics(("contract_life",))
    unloaded = Until("contract_life", "UNAVAILABLE")
    return [Case("contract-metrics-go", (there, gone, unloaded, there), ("contract_life",), fresh=True)]


CASES = flat(
    [Case(f"contract-{way}", (_how(way),), ("contract",)) for way in _WAYS],
    [
        Case(f"contract-{way}-on-the-page", (_how(way, model), Metrics((model,))), (model,))
        for way, model in ((way, f"contract_{way}") for way in SHOWN)
    ],
    _life(),
)
