from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry.domain.actors import Actor
from registry.domain.states import VERSION
from registry.errors import InvalidTransition, NotFound
from registry.models import ModelVersion, Project, RegisteredModel, Transition, User
from registry.services.transition import move
from tests.registry.moves import assert_one_path

SYSTEM = Actor.system("test")


def test_a_move_writes_the_state_and_a_row(world: Any) -> None:
    version = world.ready(world.model())
    assert (
        move(version, "state", "archived", cause="old", actor=world.actor(world.carol), state_reason="why") == "ready"
    )
    version.refresh_from_db()
    assert (version.state, version.state_reason) == ("archived", "why")
    row = Transition.objects.filter(object_id=version.id).latest("created_at")
    assert (row.from_state, row.to_state, row.cause, row.actor_name) == ("ready", "archived", "old", "carol")


def test_a_move_that_the_table_forbids_changes_nothing(world: Any) -> None:
    version = world.ready(world.model())
    before = Transition.objects.count()
    with pytest.raises(InvalidTransition):
        move(version, "state", "uploading", cause="", actor=SYSTEM)
    version.refresh_from_db()
    assert version.state == "ready"
    assert Transition.objects.count() == before


def test_a_stale_copy_is_judged_by_what_the_database_holds(world: Any) -> None:
    version = world.ready(world.model())
    stale = ModelVersion.objects.get(pk=version.pk)
    move(version, "state", "archived", cause="", actor=SYSTEM)
    with pytest.raises(InvalidTransition):
        move(stale, "state", "archived", cause="", actor=SYSTEM)


def test_a_row_that_is_gone(world: Any) -> None:
    version = ModelVersion(model=world.model(), author=world.carol)
    with pytest.raises(NotFound):
        move(version, "state", "validating", cause="", actor=SYSTEM)


@pytest.mark.django_db(transaction=True)
def test_of_two_movers_at_once_one_wins() -> None:
    user = User.objects.create(username="u")
    model = RegisteredModel.objects.create(project=Project.objects.create(slug="p", name="p"), slug="m", owner=user)
    version = ModelVersion.objects.create(model=model, author=user)
    start, results = threading.Barrier(4), []

    def run(number: int) -> None:
        try:
            mine = ModelVersion.objects.get(pk=version.pk)
            start.wait(30)
            move(mine, "state", "validating", cause=str(number), actor=SYSTEM)
            results.append("won")
        except InvalidTransition:
            results.append("lost")
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == ["lost", "lost", "lost", "won"]
    assert Transition.objects.filter(object_id=version.id).count() == 1


def test_transitions_are_append_only(world: Any) -> None:
    world.ready(world.model())
    for change in (lambda: Transition.objects.update(cause="forged"), lambda: Transition.objects.all().delete()):
        with pytest.raises(DatabaseError, match=r"append_only|Cannot"), transaction.atomic():
            change()


@pytest.mark.django_db(transaction=True)
@settings(max_examples=8, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    st.lists(st.sampled_from([*VERSION]), min_size=3, max_size=5), st.sampled_from(["validating", "ready", "archived"])
)
def test_of_many_movers_at_once_each_step_is_in_the_table(targets: list[str], first: str) -> None:
    user, _new = User.objects.get_or_create(username="u")
    project, _new = Project.objects.get_or_create(slug="p", name="p")
    model, _new = RegisteredModel.objects.get_or_create(project=project, slug="m", owner=user)
    version = ModelVersion.objects.create(model=model, author=user, state=first)
    start = threading.Barrier(len(targets))

    def run(target: str) -> None:
        try:
            mine = ModelVersion.objects.get(pk=version.pk)
            start.wait(30)
            with contextlib.suppress(InvalidTransition):
                move(mine, "state", target, cause="", actor=SYSTEM)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[target]) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    version.refresh_from_db()
    assert_one_path(VERSION, version.pk, first, version.state)
