from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from registry.domain.rollups import KEEP, bucket_of, resolution_for, windows_due

NOW = datetime(2026, 3, 4, 5, 6, 50, tzinfo=UTC)


def test_bucket_of_cuts_to_the_width() -> None:
    assert bucket_of(NOW, 10) == NOW
    assert bucket_of(NOW, 60) == NOW.replace(second=0)
    assert bucket_of(NOW, 3600) == NOW.replace(minute=0, second=0)


def test_nothing_is_due_without_samples() -> None:
    assert windows_due(NOW, newest={}, oldest={}) == []


def test_only_complete_minutes_are_due() -> None:
    due = windows_due(NOW, newest={}, oldest={10: NOW - timedelta(minutes=3)})
    assert [(one.source, one.target) for one in due] == [(10, 60)]
    assert due[0].start == bucket_of(NOW - timedelta(minutes=3), 60)
    assert due[0].end == bucket_of(NOW - timedelta(seconds=30), 60)


def test_what_is_done_is_not_due_again() -> None:
    done = bucket_of(NOW - timedelta(seconds=30), 60) - timedelta(minutes=1)
    assert windows_due(NOW, newest={60: done}, oldest={10: NOW - timedelta(hours=1)}) == []


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_windows_are_ordered_and_do_not_overlap(oldest_seconds: int, newest_seconds: int) -> None:
    due = windows_due(
        NOW,
        newest={60: bucket_of(NOW - timedelta(seconds=newest_seconds), 60)},
        oldest={10: NOW - timedelta(seconds=oldest_seconds), 60: NOW - timedelta(seconds=oldest_seconds)},
    )
    for step in (60, 3600):
        windows = [one for one in due if one.target == step]
        for first, second in itertools.pairwise(windows):
            assert first.end == second.start
        for one in windows:
            assert one.start < one.end
            assert one.start == bucket_of(one.start, step)
            assert one.end <= NOW


def test_long_or_old_charts_use_coarse_buckets() -> None:
    assert resolution_for(timedelta(hours=1), age=timedelta(hours=1)) == 10
    assert resolution_for(timedelta(days=1), age=timedelta(days=1)) == 60
    assert resolution_for(timedelta(hours=1), age=timedelta(days=3)) == 60
    assert resolution_for(timedelta(days=300), age=timedelta(days=300)) == max(KEEP)
