from __future__ import annotations

import threading

import pytest
from django.db import connection, connections

from workers.locks import Contended, advisory_lock, lock_key

pytestmark = pytest.mark.django_db(transaction=True)


def test_keys_differ_by_kind_and_name_and_fit_into_a_bigint() -> None:
    keys = {lock_key("node", 1), lock_key("node", 2), lock_key("deployment", 1)}
    assert len(keys) == 3
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_a_second_holder_is_turned_away_and_a_later_one_gets_it() -> None:
    outcome: list[str] = []

    def other() -> None:
        try:
            with advisory_lock("node", "a", wait_seconds=0):
                outcome.append("held")
        except Contended:
            outcome.append("contended")
        finally:
            connections.close_all()

    def run() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    with advisory_lock("node", "a"):
        run()
    run()
    assert outcome == ["contended", "held"]


def test_it_waits_for_a_holder_that_leaves() -> None:
    held, leave = threading.Event(), threading.Event()

    def other() -> None:
        with advisory_lock("node", "b"):
            held.set()
            leave.wait(30)
        connections.close_all()

    thread = threading.Thread(target=other)
    thread.start()
    held.wait(30)
    threading.Timer(0.1, leave.set).start()
    with advisory_lock("node", "b", wait_seconds=30):
        pass
    thread.join()


def test_an_error_inside_releases_it() -> None:
    with pytest.raises(ZeroDivisionError), advisory_lock("node", "c"):
        raise ZeroDivisionError
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (0,)


def test_a_lost_connection_inside_does_not_hide_the_error() -> None:
    def work() -> None:
        with advisory_lock("node", "d"):
            connection.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with advisory_lock("node", "d", wait_seconds=0):
        pass
