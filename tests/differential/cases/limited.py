"""A server with a rate limiter and host policies: which models load, with which words the others do not."""

from __future__ import annotations

from tests.differential.cases.repository_life import index, load
from tests.differential.steps import Case, Http, Step
from tests.differential.tensors import T, step

_SERVED = ("fits", "twice", "nothing", "weighed", "on_first", "on_unknown")
_REFUSED = (
    "too_much",
    "not_there",
    "both_and_too_much",
    "both",
    "nameless",
    "on_one",
    "on_letter",
    "on_open",
    "on_node",
)


def _case(id: str, *steps: Step) -> Case:
    return Case(f"limited-{id}", steps, profile="limited")


def _ask(model: str) -> Step:
    return step("json", model, [T("IN", "INT32", [1], [7])])


def _unload(model: str) -> Http:
    return Http("POST", f"/v2/repository/models/{model}/unload")


CASES = (
    *(_case(f"served-{model}", load(model), _ask(model), _ask(model), _unload(model)) for model in _SERVED),
    *(_case(f"refused-{model}", load(model), index(model)) for model in _REFUSED),
    _case("passive", load("passive"), index("passive"), _unload("passive")),
    _case("global-beside-device", load("fits"), load("global_too"), _ask("fits"), _unload("fits")),
)
