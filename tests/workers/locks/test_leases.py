from __future__ import annotations

import threading
import uuid

import pytest
from django.db import OperationalError

from workers.locks import leases
from workers.locks.leases import Lease, LeaseLost, new_owner


class Rows:
    """Stands in for the operations service: answers of renewals in order, then the last one for ever."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.renewals = 0
        self.renewed = threading.Event()

    def renew(self, operation_id: uuid.UUID, owner: str) -> bool:
        self.renewals += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not self.answers or self.renewals >= 3:
            self.renewed.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def lease_over(rows: Rows, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Lease:
    monkeypatch.setattr(leases, "operation_renew", rows.renew)
    return Lease(uuid.uuid4(), new_owner(), seconds)


def test_it_renews_while_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(True)
    with lease_over(rows, monkeypatch, 0.03) as lease:
        assert rows.renewed.wait(30)
        lease.check()
    ended = rows.renewals
    assert not lease.is_lost
    assert rows.renewals == ended


def test_a_refused_renewal_stops_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(True, False)
    with lease_over(rows, monkeypatch, 0.03) as lease:
        assert lease._lost.wait(30)
        with pytest.raises(LeaseLost):
            lease.check()


def test_a_database_that_is_away_briefly_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(OperationalError("restarting"), True)
    with lease_over(rows, monkeypatch, 3.0) as lease:
        assert not lease.is_lost


def test_a_database_that_stays_away_ends_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(OperationalError("gone"))
    with lease_over(rows, monkeypatch, 0.06) as lease:
        assert lease._lost.wait(30)
        with pytest.raises(LeaseLost):
            lease.check()


def test_progress_that_is_not_taken_stops_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "operation_report", lambda *args, **kwargs: False)
    with lease_over(Rows(True), monkeypatch, 60) as lease:
        with pytest.raises(LeaseLost):
            lease.report(10, "working")
        assert lease.is_lost


def test_two_attempts_never_share_an_owner() -> None:
    assert new_owner() != new_owner()
    assert len(new_owner()) <= 100
