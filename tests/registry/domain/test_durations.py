from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.durations import minutes_text, read_minutes


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90m", 90),
        ("62h", 3720),
        ("2d", 2880),
        (" 15 ", 15),
        ("3 H", 180),
        ("0", 0),
        ("", None),
        ("-1h", None),
        ("1.5h", None),
        ("1w", None),
        ("٣h", None),
    ],
)
def test_reading(text: str, minutes: int | None) -> None:
    assert read_minutes(text) == minutes


@given(st.integers(0, 44_640))
def test_what_is_written_is_read(minutes: int) -> None:
    assert read_minutes(minutes_text(minutes)) == minutes
