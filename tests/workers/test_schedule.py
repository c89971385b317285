from __future__ import annotations

import threading
from typing import Any

import pytest
from celery import current_app
from celery.beat import ScheduleEntry
from django.db import connection, connections

from workers.schedule import STANDBY_SECONDS, SingleScheduler

pytestmark = pytest.mark.django_db(transaction=True)


class Recording(SingleScheduler):
    """Notes what would be sent; every entry is due at once."""

    def __init__(self, sent: list[str]) -> None:
        self.sent = sent
        super().__init__(current_app, lazy=True)
        self.schedule = {"one": self.Entry(name="one", task="workers.sweep", schedule=0.001, app=current_app)}

    def apply_async(self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **kwargs: Any) -> None:
        self.sent.append(entry.task)
        if advance:
            self.reserve(entry)


def tick_until_sent(scheduler: Recording) -> None:
    for _ in range(1000):
        scheduler.tick()
        if scheduler.sent:
            return


def test_only_one_of_two_sends_and_the_other_takes_over() -> None:
    first, second = Recording([]), Recording([])
    tick_until_sent(first)
    waits: list[float] = []

    def beat() -> None:
        waits.append(second.tick())
        connections.close_all()

    thread = threading.Thread(target=beat)
    thread.start()
    thread.join()
    assert first.sent
    assert (second.sent, waits) == ([], [STANDBY_SECONDS])

    connection.close()  # the first beat is gone, and its lock with it
    thread = threading.Thread(target=lambda: (tick_until_sent(second), connections.close_all()))
    thread.start()
    thread.join()
    assert second.sent == ["workers.sweep"]


def test_the_lock_is_taken_once_however_often_it_ticks() -> None:
    scheduler = Recording([])
    for _ in range(5):
        scheduler.tick()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (1,)
    connection.close()
