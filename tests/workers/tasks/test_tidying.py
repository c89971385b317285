from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from registry.models import JoinToken
from workers.tasks import definitions
from workers.tasks.tidying import tidy_up

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_step_that_fails_stops_no_other() -> None:
    done: list[datetime] = []

    def broken(now: datetime) -> None:
        raise OSError("the store is away")

    now = timezone.now()
    assert tidy_up(now, {"first": broken, "second": done.append}) == ["first"]
    assert done == [now]


def test_what_ran_out_goes_and_the_rest_stays() -> None:
    now = timezone.now()
    Session.objects.create(session_key="old", session_data="", expire_date=now - timedelta(seconds=1))
    Session.objects.create(session_key="new", session_data="", expire_date=now + timedelta(days=1))
    JoinToken.objects.create(token_sha256="a" * 64, expires_at=now - timedelta(days=40))
    JoinToken.objects.create(token_sha256="b" * 64, expires_at=now - timedelta(days=1))
    definitions.tidy()
    assert [row.session_key for row in Session.objects.all()] == ["new"]
    assert [row.token_sha256[0] for row in JoinToken.objects.all()] == ["b"]
