"""The pure batcher forms what Triton formed when its answers were recorded; simulated time takes no time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.differential.formation.record import read
from tests.differential.formation.replay import replay
from tests.differential.formation.schedules import SCHEDULES, Schedule

_RECORDED = read()
_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "differences.md"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.id)
def test_forms_the_recorded_batches(schedule: Schedule) -> None:
    formed = replay(schedule)
    if schedule.difference:
        assert formed != _RECORDED[schedule.id], "now equal: take the note of a difference away"
    else:
        assert formed == _RECORDED[schedule.id]


def test_each_noted_difference_is_a_row_of_the_page() -> None:
    rows = {match[1].strip() for match in re.finditer(r"^\|([^|]+)\|", _PAGE.read_text(), re.MULTILINE)}
    assert {schedule.difference for schedule in SCHEDULES if schedule.difference} <= rows


def test_there_are_enough_schedules_and_each_has_its_own_name() -> None:
    equal = [schedule.id for schedule in SCHEDULES if not schedule.difference]
    assert len(set(equal)) == len(equal) >= 60
    assert set(_RECORDED) == {schedule.id for schedule in SCHEDULES}
