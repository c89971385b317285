"""A query that is written once says what the query itself says, for each value, thread and moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.postgres.expressions import ArraySubquery
from django.db import connection, connections
from django.db.models import OuterRef, Q, QuerySet

from registry.models import Membership, Project, User
from registry.selectors.prepared import Prepared


def _named(name: str) -> QuerySet[User]:
    slugs = Membership.objects.filter(user=OuterRef("pk")).order_by("project__slug").values("project__slug")
    return User.objects.filter(Q(username=name) | Q(email=name)).annotate(slugs=ArraySubquery(slugs)).order_by("pk")


def _of(user: object, least: object) -> QuerySet[Membership]:
    rows = Membership.objects.filter(user_id=user, project__slug__gte=least, role__in=["viewer", "admin"])
    return rows.select_related("project", "mapped_by").defer("project__description").order_by("-project__slug")[:2]


@pytest.fixture
def people() -> list[User]:
    made = [User.objects.create_user(f"person-{number}", f"p{number}@x.org", None) for number in range(3)]
    for number in range(4):
        project = Project.objects.create(slug=f"project-{number}", name="one", description="long")
        Membership.objects.create(project=project, user=made[0], role="admin")
        Membership.objects.create(project=project, user=made[1], role="viewer" if number % 2 else "operator")
    return made


@pytest.mark.django_db
def test_the_rows_are_those_of_the_query(people: list[User]) -> None:
    named, of = Prepared(_named), Prepared(_of)
    for name in ("person-0", "p1@x.org", "nobody", "o'quote %s", ""):
        assert [(one.pk, one.slugs) for one in named(name=name)] == [(o.pk, o.slugs) for o in _named(name)]  # type: ignore[attr-defined]
    for person in people:
        for least in ("", "project-1", "project-3", "project-9"):
            found, wanted = of(user=person.pk, least=least), list(_of(person.pk, least))
            assert [one.pk for one in found] == [one.pk for one in wanted]
            assert [one.__dict__.keys() for one in found] == [one.__dict__.keys() for one in wanted]
            assert [one.project.slug for one in found] == [one.project.slug for one in wanted]


@pytest.mark.django_db
def test_it_is_written_once_and_reads_what_is_there_now(people: list[User]) -> None:
    written: list[object] = []

    def rows(name: object) -> QuerySet[User]:
        written.append(name)
        return User.objects.filter(username=name)

    prepared = Prepared(rows)
    assert prepared(name="somebody") == []
    made = User.objects.create_user("somebody", "s@x.org", None)
    assert prepared(name="somebody") == [made]
    made.delete()
    assert (prepared(name="somebody"), prepared(name="person-1"), len(written)) == ([], [people[1]], 1)


@pytest.mark.django_db(transaction=True)
def test_each_thread_asks_by_its_own_connection(people: list[User]) -> None:
    prepared = Prepared(lambda name: User.objects.filter(username=name))
    assert prepared(name="person-0") == [people[0]]
    mine = connection.connection

    def ask(number: int) -> tuple[list[User], bool]:
        try:
            return prepared(name=f"person-{number % 3}"), connection.connection is not mine
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(40)))
    assert answers == [([people[number % 3]], True) for number in range(40)]


def test_what_is_missing_is_said() -> None:
    prepared = Prepared(lambda name: User.objects.filter(username=name))
    with pytest.raises(KeyError, match="name"):
        prepared(other="x")
