"""Which names may be aliases: none that a number or an id of a version could be."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.aliases import LATEST, MAX_ALIAS, alias_problem, is_alias


@pytest.mark.parametrize("name", ["champion", "a", "blue-green", "eu_west1", "v2x", "x" * MAX_ALIAS])
def test_good_names(name: str) -> None:
    assert alias_problem(name) == "" and is_alias(name)


@pytest.mark.parametrize(
    "name", ["", "1", "v1", "v007", "Champion", "a b", "a/b", "-a", "a-", "é", "x" * (MAX_ALIAS + 1), "a\n", "a.b"]
)
def test_bad_names(name: str) -> None:
    assert alias_problem(name) and not is_alias(name)


def test_latest_is_read_but_never_set() -> None:
    assert alias_problem(LATEST) and is_alias(LATEST)


@given(st.uuids(), st.integers(min_value=0), st.booleans())
def test_no_id_and_no_number_is_an_alias(one: uuid.UUID, number: int, short: bool) -> None:
    assert not is_alias(one.hex if short else str(one))
    assert not is_alias(str(number)) and not is_alias(f"v{number}")
