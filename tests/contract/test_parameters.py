"""The settings beyond Triton: each is described, checked, and read as what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving_node.contract import parameters
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import parse_pbtxt, problems
from serving_node.contract.parameters import PARAMETERS, PREFIX, Parameter, ParameterKind, find, parameter

ROOT = Path(__file__).parents[2]

OURS = (
    Parameter("flotilla.many", ParameterKind.INTEGER, "Many", "How many.", default="4", minimum=1, maximum=9),
    Parameter("flotilla.share", ParameterKind.NUMBER, "Share", "How much.", minimum=0, maximum=1),
    Parameter("flotilla.on", ParameterKind.SWITCH, "On", "Whether.", default="false"),
    Parameter("flotilla.way", ParameterKind.CHOICE, "Way", "Which.", default="left", choices=("left", "right")),
    Parameter("flotilla.word", ParameterKind.TEXT, "Word", "What.", section="dynamic_batching"),
    Parameter("flotilla.pad", ParameterKind.INTEGER, "Pad", "How far.", minimum=1, per_input=True),
)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "PARAMETERS", OURS)


def config(key: str = "", value: str = "", more: str = "") -> str:
    given = f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' if key else ""
    return f'name: "m" backend: "b" {given} {more}'


def complaints(text: str) -> list[tuple[str, str]]:
    found = problems(parse_pbtxt(text), require_tensors=False)
    return [(problem.field, problem.message) for problem in found]


@pytest.mark.parametrize("known", PARAMETERS, ids=lambda known: known.key)
def test_a_setting_is_fit_for_a_form(known: Parameter) -> None:
    assert known.key.startswith(PREFIX)
    assert known.label and not known.label.endswith(".")
    assert known.help.endswith(".")
    assert bool(known.choices) == (known.kind is ParameterKind.CHOICE)
    if known.default and not known.per_input:
        assert parameter(parse_pbtxt(config()), known.key) is not None
    assert not known.minimum or known.kind in (ParameterKind.INTEGER, ParameterKind.NUMBER)


def test_the_reference_has_a_row_for_each_and_no_other() -> None:
    page = (ROOT / "docs/reference/scheduling.md").read_text().partition("## Settings beyond Triton")[2]
    rows = re.findall(r"^\| `(flotilla\.[^`<]+?)\.?(?:<[^`]*>)?`", page, re.MULTILINE)
    assert sorted(rows) == sorted(known.key for known in PARAMETERS)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("flotilla.many", "7", 7),
        ("flotilla.share", "0.5", 0.5),
        ("flotilla.on", "True", True),
        ("flotilla.way", "right", "right"),
        ("flotilla.pad.x", "8", 8),
    ],
)
@pytest.mark.usefixtures("ours")
def test_a_value_is_read_as_what_it_is(key: str, text: str, value: object) -> None:
    written = config(key, text, 'input { name: "x" data_type: TYPE_FP32 dims: 1 }')
    assert complaints(written) == []
    assert parameter(parse_pbtxt(written), key) == value


@pytest.mark.usefixtures("ours")
def test_what_is_left_out_has_its_default() -> None:
    empty = parse_pbtxt(config())
    assert [parameter(empty, known.key) for known in OURS[:4]] == [4, None, False, "left"]


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("flotilla.many", "x", "parameter 'flotilla.many' must be a whole number, got 'x'"),
        ("flotilla.many", "0", "parameter 'flotilla.many' must be at least 1, got 0"),
        ("flotilla.many", "10", "parameter 'flotilla.many' must be at most 9, got 10"),
        ("flotilla.share", "nan", "parameter 'flotilla.share' must be a number, got 'nan'"),
        ("flotilla.on", "yes", "parameter 'flotilla.on' must be true or false, got 'yes'"),
        ("flotilla.way", "up", "parameter 'flotilla.way' must be one of left, right, got 'up'"),
    ],
)
@pytest.mark.usefixtures("ours")
def test_a_wrong_value_is_refused_at_its_field(key: str, text: str, sentence: str) -> None:
    assert complaints(config(key, text)) == [(f"parameters[{key}].string_value", sentence)]
    with pytest.raises(ContractError):
        parameter(parse_pbtxt(config(key, text)), key)


@pytest.mark.usefixtures("ours")
def test_a_key_that_means_nothing_is_refused() -> None:
    hint = "parameter 'flotilla.mane' for m is not known, did you mean 'flotilla.many'?"
    assert complaints(config("flotilla.mane", "1")) == [("parameters[flotilla.mane]", hint)]
    alone = "parameter 'flotilla.word' for m needs 'dynamic_batching'"
    assert complaints(config("flotilla.word", "w")) == [("parameters[flotilla.word]", alone)]
    stray = "parameter 'flotilla.pad.y' for m names 'y', which is no input"
    written = config("flotilla.pad.y", "1", 'input { name: "x" data_type: TYPE_FP32 dims: 1 }')
    assert complaints(written) == [("parameters[flotilla.pad.y]", stray)]
    assert complaints(config("flotilla_of.another", "1")) == []
    assert find("flotilla.pad") is None
