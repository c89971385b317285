"""The line that shows an upload, whoever calls it and in whatever order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from flotilla.commands.upload_bar import UploadBar
from flotilla.sdk.following import Step

MIB = 2**20


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_time_left_are_of_what_is_sent_now() -> None:
    told: list[Step] = []
    clock = Clock()
    bar = UploadBar([40 * MIB, 10 * MIB], told.append, clock=clock)
    bar("a", 16 * MIB, 40 * MIB)  # There from an earlier push: no rate comes of it.
    assert told[-1].detail == "16.0 of 50.0 MiB"
    clock.now += 2
    bar("b", 0, 10 * MIB)
    bar("a", 20 * MIB, 40 * MIB)
    clock.now += 2
    bar("a", 24 * MIB, 40 * MIB)
    assert (told[-1].percent, told[-1].message) == (48, "0 of 2 files")
    assert told[-1].detail == "24.0 of 50.0 MiB, 2.0 MiB/s, 0:13 left"
    clock.now += 2
    bar("b", 10 * MIB, 10 * MIB)
    bar("a", 40 * MIB, 40 * MIB)
    assert (told[-1].percent, told[-1].message) == (100, "2 of 2 files")
    assert "left" not in told[-1].detail


def test_a_slow_hour_is_said_in_hours_and_old_seconds_do_not_count() -> None:
    told: list[Step] = []
    clock = Clock()
    bar = UploadBar([10_000 * MIB], told.append, clock=clock)
    bar("a", 0, 10_000 * MIB)
    clock.now += 1
    bar("a", 1000 * MIB, 10_000 * MIB)
    for second in range(1, 31):
        clock.now += 1
        bar("a", (1000 + second) * MIB, 10_000 * MIB)
    assert told[-1].detail == "1.0 of 9.8 GiB, 1.0 MiB/s, 2:29:30 left"


def test_many_threads_tell_one_at_a_time_and_nothing_is_lost() -> None:
    told: list[Step] = []
    inside: list[int] = []
    clock = Clock()

    def tell(step: Step) -> None:
        inside.append(1)
        assert len(inside) == 1
        told.append(step)
        inside.clear()

    bar = UploadBar([1000] * 16, tell, clock=clock)

    def send(number: int) -> None:
        for sent in range(0, 1001, 10):
            clock.now += 1  # Each call is to be shown.
            bar(str(number), sent, 1000)

    with ThreadPoolExecutor(max_workers=16) as threads:
        list(threads.map(send, range(16)))
    percents = [step.percent or 0 for step in told]
    assert percents == sorted(percents)
    assert (told[-1].percent, told[-1].message) == (100, "16 of 16 files")
