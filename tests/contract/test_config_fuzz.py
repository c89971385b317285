"""Any text as a config: it is taken or refused with a sentence, and what is taken survives every form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import (
    canonical_json,
    normalise,
    parse_json,
    parse_pbtxt,
    to_json,
    to_pbtxt,
    validate,
)
from serving_node.contract.proto.model_config_pb2 import ModelConfig

pytestmark = pytest.mark.fuzz

_INTEGERS = st.one_of(
    st.integers(-3, 20), st.sampled_from([-(2**63), 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30])
)
_NAMES = st.sampled_from(["m", "X", "a b", "", "../x", "é", "input", "\\000", '\\"'])
_FRAGMENTS = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "<",
    ">",
    '"',
    "'",
    "#",
    "-",
    "0x",
    "1e999",
    "nan",
    "\\",
    "\0",
    "é",
    "\n",
    " ",
]


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[str]:
    if field.enum_type is not None:
        known = [value.name for value in field.enum_type.values]
        return st.one_of(st.sampled_from(known), _INTEGERS.map(str), st.just("NO_SUCH"))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _NAMES.map(lambda name: f'"{name}"')
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.sampled_from(["true", "false", "0", "1", "2", "yes"])
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return st.sampled_from(["0", "-1.5", "1e400", "nan", "inf", "-inf"])
    return _INTEGERS.map(str)


def _message(descriptor: Descriptor, depth: int) -> st.SearchStrategy[str]:
    """Return texts of a message: known fields with values of the right kind, mostly."""
    fields = [field for field in descriptor.fields if depth or field.message_type is None]
    if not fields:
        return st.just("")
    return st.lists(st.sampled_from(fields).flatmap(lambda field: _field(field, depth)), max_size=4).map("\n".join)


def _field(field: FieldDescriptor, depth: int) -> st.SearchStrategy[str]:
    if field.message_type is not None:
        inner = _message(field.message_type, depth - 1)
        return inner.map(lambda text: f"{field.name} {{ {text} }}")
    value = _scalar(field)
    listed = st.lists(value, max_size=3).map(lambda values: f"{field.name}: [ {', '.join(values)} ]")
    return st.one_of(value.map(lambda text: f"{field.name}: {text}"), listed)


_CONFIGS = _message(ModelConfig.DESCRIPTOR, depth=3)


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """Return the text of a config with a few cuts and insertions."""
    text = draw(_CONFIGS)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 8)))
        text = text[:start] + draw(st.sampled_from(_FRAGMENTS)) + text[end:]
    return text


def _unless_refused(parse: Callable[..., ModelConfig], *given: Any) -> ModelConfig | None:
    """Return what ``parse`` makes of it, None when it is refused with a sentence; anything else it raises fails."""
    try:
        return parse(*given)
    except ContractError as error:
        sentence = error.message
    assert sentence
    return None


def _validated(config: ModelConfig) -> ModelConfig:
    normal = normalise(config)
    assert normalise(normal) == normal
    validate(normal, model_name="m")
    return normal


def _check(text: str) -> None:
    """Take the text through every step of a load."""
    config = _unless_refused(parse_pbtxt, text)
    if config is None:
        return
    assert parse_pbtxt(to_pbtxt(config)) == config
    document = to_json(config)
    assert canonical_json(config)
    again = _unless_refused(parse_json, document)
    assert again is None or to_json(again) == document
    _unless_refused(_validated, config)


@given(_CONFIGS)
def test_a_config_of_known_fields_is_taken_or_refused_with_a_sentence(text: str) -> None:
    _check(text)


@given(_damaged())
def test_a_damaged_config_is_taken_or_refused_with_a_sentence(text: str) -> None:
    _check(text)


@given(st.text(max_size=400))
def test_any_text_is_taken_or_refused_with_a_sentence(text: str) -> None:
    _check(text)


@pytest.mark.parametrize("text", ["input { " * 5000, "a" * 100_000, "[" * 5000, "dims: " + "9" * 5000, "#" * 100_000])
def test_long_and_deep_texts_are_taken_or_refused_at_once(text: str) -> None:
    _check(text)


_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
_FIELDS = st.sampled_from([field.name for field in ModelConfig.DESCRIPTOR.fields])
_JSON = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_FIELDS, inner, max_size=4)),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_is_taken_or_refused_with_a_sentence(document: Any) -> None:
    config = _unless_refused(parse_json, document)
    assert config is None or parse_json(to_json(config)) == config


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(_FRAGMENTS)).map("".join)))
def test_any_text_as_json_is_taken_or_refused_with_a_sentence(text: str) -> None:
    _unless_refused(parse_json, text)
