"""The node answers as Triton did when its answers were recorded."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential import answers, servers
from tests.differential.cases import ALL, GROUPS
from tests.differential.comparing import differences
from tests.differential.playing import Player
from tests.differential.steps import Case

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"
_RECORDED = {id: sides for group in GROUPS for id, sides in answers.read(group).items()}


@pytest.fixture(scope="session")
def players() -> Iterator[dict[str, Player]]:
    """Start each kind of server once, when the first case needs it."""
    with contextlib.ExitStack() as stack:
        yield _Players(stack)


class _Players(dict[str, Player]):
    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def __missing__(self, profile: str) -> Player:
        server = self._stack.enter_context(servers.node(profile))
        player = self[profile] = self._stack.enter_context(contextlib.closing(Player(server)))
        return player


def _parameter(case: Case) -> object:
    marks = [pytest.mark.xdist_group("differential")]
    if case.waits_for:
        # the answers are there; the day the node gives them, this mark has to go
        marks.append(pytest.mark.xfail(reason=f"waits for issue {case.waits_for}", strict=True))
    return pytest.param(case, id=case.id, marks=marks)


@pytest.mark.integration
@pytest.mark.parametrize("case", [_parameter(case) for case in ALL])
def test_answers_as_recorded(case: Case, players: dict[str, Player]) -> None:
    sides = _RECORDED[case.id]
    expected = sides["node" if case.difference else "triton"]
    got = players[case.profile].play(case, expected)
    if case.difference:
        assert differences(sides["triton"], got), f"now equal: take the note {case.difference!r} away"
    assert not (found := differences(expected, got)), "\n".join(found)


def test_each_noted_difference_is_a_row_of_the_page() -> None:
    rows = {match[1].strip() for match in re.finditer(r"^\|([^|]+)\|", _PAGE.read_text(), re.MULTILINE)}
    assert {case.difference for case in ALL if case.difference} <= rows


def test_there_are_enough_cases_and_each_has_its_own_name() -> None:
    assert len({case.id for case in ALL}) == len(ALL) >= 300


def test_nothing_is_recorded_of_cases_that_are_gone() -> None:
    assert set(_RECORDED) == {case.id for case in ALL}
