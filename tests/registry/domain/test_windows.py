from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.domain.windows import Window, opening, read_windows
from registry.errors import ValidationFailed

BERLIN = ZoneInfo("Europe/Berlin")
WEEKEND = Window("weekend", "deny", "0 18 * * FRI", 62 * 60, "Europe/Berlin")
OFFICE = Window("office hours", "allow", "0 9 * * MON-FRI", 8 * 60, "Europe/Berlin")


def berlin(*parts: int, fold: int = 0) -> datetime:
    return datetime(*parts, tzinfo=BERLIN, fold=fold).astimezone(UTC)  # type: ignore[misc, arg-type]


def test_without_windows_it_is_always_open() -> None:
    now = berlin(2026, 6, 1)
    assert opening([], now) == now


def test_a_closing_window_ends_with_its_duration() -> None:
    friday, monday = berlin(2026, 6, 5, 18), berlin(2026, 6, 8, 8)
    assert opening([WEEKEND], friday - timedelta(seconds=1)) == friday - timedelta(seconds=1)
    assert opening([WEEKEND], friday) == monday
    assert opening([WEEKEND], monday - timedelta(microseconds=1)) == monday
    assert opening([WEEKEND], monday) == monday


def test_an_opening_window_is_waited_for() -> None:
    assert opening([OFFICE], berlin(2026, 6, 5, 17)) == berlin(2026, 6, 8, 9)
    assert opening([OFFICE], berlin(2026, 6, 8, 9)) == berlin(2026, 6, 8, 9)


def test_closing_wins_over_opening() -> None:
    freeze = Window("release", "deny", "0 0 8 6 *", 24 * 60, "Europe/Berlin")
    assert opening([OFFICE, freeze], berlin(2026, 6, 6)) == berlin(2026, 6, 9, 9)


def test_what_never_opens_says_so() -> None:
    assert opening([Window("always", "deny", "* * * * *", 10, "UTC")], berlin(2026, 6, 6)) is None
    leap = Window("leap day", "allow", "0 0 29 2 *", 60, "UTC")
    assert opening([leap], datetime(2026, 6, 1, tzinfo=UTC)) is None
    assert opening([leap], datetime(2028, 2, 1, tzinfo=UTC)) == datetime(2028, 2, 29, tzinfo=UTC)


def test_clocks_forward_the_lost_hour_begins_after_the_gap() -> None:
    night = Window("night", "deny", "30 2 * * *", 60, "Europe/Berlin")
    assert night.ends(berlin(2026, 3, 29, 3)) == berlin(2026, 3, 29, 4)
    assert night.ends(berlin(2026, 3, 29, 1, 59)) is None


def test_clocks_back_the_repeated_hour_begins_once() -> None:
    night = Window("night", "deny", "30 2 * * *", 45, "Europe/Berlin")
    first = berlin(2026, 10, 25, 2, 30, fold=0)
    assert night.ends(first) == first + timedelta(minutes=45)
    # Ten past two for the second time: forty minutes after the beginning.
    assert night.ends(berlin(2026, 10, 25, 2, 10, fold=1)) == first + timedelta(minutes=45)
    assert night.ends(berlin(2026, 10, 25, 2, 30, fold=1)) is None
    assert night.begins(first) == berlin(2026, 10, 26, 2, 30)


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Asia/Kolkata"]
# Days around every change of clocks of 2026 in these zones, and a quiet one.
DAYS = [(3, 8), (3, 29), (4, 5), (10, 4), (10, 25), (11, 1), (6, 15)]
CRONS = ["30 2 * * *", "0 1 * * *", "15 1,2,3 * * *", "*/20 * * * *", "5 * * * *", "0 18 * * FRI", "30 1-3 * * SUN"]


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(DAYS),
    st.sampled_from(CRONS),
    st.integers(1, 3 * 24 * 60),
    st.integers(-36 * 60, 36 * 60),
    st.integers(0, 59),
)
def test_what_lasts_is_what_walking_through_all_beginnings_finds(
    zone: str, day: tuple[int, int], cron: str, minutes: int, offset: int, seconds: int
) -> None:
    at = datetime(2026, *day, tzinfo=UTC) + timedelta(minutes=offset, seconds=seconds)
    window = Window("w", "deny", cron, minutes, zone)
    begins = []
    for begin in CronSim(cron, (at - timedelta(days=10)).astimezone(ZoneInfo(zone))):
        if begin > at + timedelta(days=8):
            break
        begins.append(begin.astimezone(UTC))
    lasting = [begin for begin in begins if begin <= at < begin + window.duration]
    assert window.ends(at) == (max(lasting) + window.duration if lasting else None)
    assert window.begins(at) == min(begin for begin in begins if begin > at)
    opens = opening([window], at)
    if opens is not None:
        assert opens >= at
        assert window.ends(opens) is None
        assert not lasting or window.ends(opens - timedelta(microseconds=1)) is not None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            Window,
            st.just("w"),
            st.sampled_from(["allow", "deny"]),
            st.sampled_from(CRONS),
            st.integers(1, 2000),
            st.sampled_from(ZONES),
        ),
        max_size=4,
    ),
    st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC)),
)
def test_an_opening_is_open_and_nothing_before_it_is(windows: list[Window], at: datetime) -> None:
    def is_open(moment: datetime) -> bool:
        lasting = [window.effect for window in windows if window.ends(moment) is not None]
        return "deny" not in lasting and ("allow" in lasting or all(window.effect == "deny" for window in windows))

    opens = opening(windows, at)
    if opens is None:
        return
    assert is_open(opens)
    for part in range(8):
        earlier = at + (opens - at) * part / 8
        assert earlier == opens or not is_open(earlier)


def test_reading_names_every_mistake() -> None:
    good = {"name": "", "effect": "deny", "cron": "0 18 * * fri", "duration_minutes": 60, "time_zone": "Europe/Berlin"}
    (window,) = read_windows([{**good, "cron": " 0  18 * * fri"}])
    assert (window.name, window.to_json()) == ("0 18 * * fri", {**good, "name": "0 18 * * fri"})
    bad = {"effect": "maybe", "cron": "61 * * * *", "duration_minutes": 0, "time_zone": "../etc/passwd", "x": 1}
    with pytest.raises(ValidationFailed) as caught:
        read_windows([good, bad])
    assert {error["field"] for error in caught.value.errors} == {
        f"windows[1].{name}" for name in ("effect", "cron", "duration_minutes", "time_zone", "x")
    }
    for broken in ({}, [1], [{}] * 21, [{**good, "cron": "0 0 30 2 *"}], [{**good, "cron": "0 0 18 * * FRI"}]):
        with pytest.raises(ValidationFailed):
            read_windows(broken)
    for zone in ("", "Europe", "Nowhere/Never", "a\0b", "/etc/localtime"):
        with pytest.raises(ValidationFailed):
            read_windows([{**good, "time_zone": zone}])
