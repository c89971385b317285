"""The pace of bodies: no clock, no socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.middleware.pace import Pace


def seen(pace: Pace, arrived: int, now: float) -> str:
    found = pace.look(arrived, now)
    return found.code if found else ""


@pytest.mark.parametrize(("arrived", "code"), [(0, "idle"), (1, "too_slow"), (99, "too_slow"), (100, "")])
def test_window_asks_for_its_bytes(arrived: int, code: str) -> None:
    pace = Pace(least_rate=10, window_seconds=10, deadline=1000)
    pace.wait(0)
    assert seen(pace, arrived, 9.9) == ""
    assert seen(pace, arrived, 10) == code


def test_next_window_asks_again() -> None:
    pace = Pace(10, 10, deadline=1000)
    pace.wait(0)
    assert seen(pace, 500, 10) == ""
    assert seen(pace, 500, 20) == "idle"


def test_short_waits_add_up_and_what_lies_between_them_does_not() -> None:
    pace = Pace(10, 10, deadline=10_000)
    for turn in range(5):
        pace.wait(100 * turn)
        pace.rest(1, 100 * turn + 2)
    assert seen(pace, 0, 402) == "too_slow"
    slow_disk = Pace(10, 10, deadline=10_000)
    for turn in range(5):
        slow_disk.wait(100 * turn)
        slow_disk.rest(1, 100 * turn + 1)
    assert seen(slow_disk, 0, 499) == ""


def test_deadline_ends_also_what_comes_fast() -> None:
    pace = Pace(10, 10, deadline=25)
    pace.wait(20)
    assert pace.seconds_left(20) == 5
    assert seen(pace, 10**9, 25) == "too_slow"


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 5), st.integers(0, 3)), min_size=1, max_size=60),
)
def test_no_body_outlives_its_rate(rate: int, turns: list[tuple[float, float, int]]) -> None:
    """Whoever looks when told to waits at most two windows for less than a window's bytes, never past the deadline."""
    pace, now, waited, came = Pace(rate, 10, deadline=500), 0.0, 0.0, 0
    for wait, rest, count in turns:
        pace.wait(now)
        left, begun = wait, now
        while left > 0 and pace.seconds_left(now) <= left:
            step = pace.seconds_left(now)
            now, left = now + step, left - step
            if pace.look(0, now):
                assert now <= 500
                return
            assert step > 0 or pace.seconds_left(now) > 0
        now += left
        pace.rest(count, now)
        waited, came = waited + now - begun, came + count
        now += rest
    assert came >= rate * 10 * (waited // 10 - 1)
