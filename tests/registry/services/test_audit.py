from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from registry.domain.actors import Actor
from registry.models import AuditEvent, AuditSeal, Project, Transition
from registry.services.audit import chains, record, seal_pending, verify_chain


@pytest.fixture
def sealed(world: Any) -> Any:
    world.ready(world.model())
    world.node()
    world.model(project=world.other)
    total = AuditEvent.objects.count()
    assert seal_pending() == total
    return world


def test_every_project_has_its_chain(sealed: Any) -> None:
    assert set(chains()) == {str(sealed.project.id), str(sealed.other.id), "site"}
    for chain in chains():
        report = verify_chain(chain)
        assert report.ok
        assert report.checked == AuditSeal.objects.filter(chain=chain).count() > 0


def test_sealing_goes_on_where_it_ended(sealed: Any) -> None:
    assert seal_pending() == 0
    before = AuditSeal.objects.filter(chain=str(sealed.project.id)).count()
    sealed.model()
    sealed.model()
    assert seal_pending(limit=1) == 1
    assert seal_pending() == 1
    chain = AuditSeal.objects.filter(chain=str(sealed.project.id)).order_by("sequence")
    assert [seal.sequence for seal in chain] == list(range(1, before + 3))
    assert verify_chain(str(sealed.project.id)).ok


def test_a_transaction_of_days_is_sealed_later(sealed: Any) -> None:
    event = record(actor=Actor.system("test"), action="test.run", obj=sealed.project)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    forge("UPDATE registry_auditevent SET created_at = created_at - interval '3 days' WHERE id = %s", event.id)
    assert seal_pending() == 0
    assert seal_pending(everything=True) == 1
    assert seal_pending(everything=True) == 0
    assert verify_chain(str(sealed.project.id)).ok


@pytest.mark.parametrize("model", [AuditEvent, AuditSeal])
def test_rows_cannot_be_changed_or_deleted(sealed: Any, model: Any) -> None:
    column = "actor_name" if model is AuditEvent else "hash"
    with pytest.raises(DatabaseError), transaction.atomic():
        model.objects.update(**{column: "forged"})
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditSeal.objects.all()._raw_delete("default")
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM registry_auditevent")


@pytest.mark.parametrize("model", [AuditEvent, AuditSeal, Transition])
def test_tables_cannot_be_emptied_at_once(sealed: Any, model: Any) -> None:
    count = model.objects.count()
    assert count > 0
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    truncate = f"TRUNCATE {model._meta.db_table} CASCADE"
    with pytest.raises(DatabaseError, match="Cannot truncate"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(truncate)
    assert model.objects.count() == count


@pytest.mark.parametrize("turn", [1, 2])
def test_history_of_a_test_with_real_commits_does_not_reach_the_next(transactional_db: None, turn: int) -> None:
    assert not AuditEvent.objects.exists() and not Transition.objects.exists()
    project = Project.objects.create(slug="team", name="Team")
    record(actor=Actor.system("test"), action="test.run", obj=project)
    Transition.objects.create(object_type="test", object_id=project.id)
    assert seal_pending(everything=True) == 1


def forge(statement: str, *values: Any) -> None:
    """Change rows as somebody with the owner's rights on the database could."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE registry_auditevent DISABLE TRIGGER USER")
        cursor.execute("ALTER TABLE registry_auditseal DISABLE TRIGGER USER")
        cursor.execute(statement, values)
        cursor.execute("ALTER TABLE registry_auditevent ENABLE TRIGGER USER")
        cursor.execute("ALTER TABLE registry_auditseal ENABLE TRIGGER USER")


def test_a_forged_event_is_found(sealed: Any) -> None:
    chain = str(sealed.project.id)
    seal = AuditSeal.objects.filter(chain=chain).order_by("sequence")[1]
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    forge("UPDATE registry_auditevent SET actor_name = 'nobody' WHERE id = %s", seal.event_id)
    report = verify_chain(chain)
    assert (report.ok, report.bad_sequence, report.problem) == (False, 2, "its event was changed")
    with pytest.raises(CommandError):
        call_command("verify_audit", stdout=StringIO())


def test_a_missing_seal_is_found(sealed: Any) -> None:
    chain = str(sealed.project.id)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    forge("DELETE FROM registry_auditseal WHERE chain = %s AND sequence = 1", chain)
    assert verify_chain(chain).bad_sequence == 2


def test_a_row_says_who_from_where(world: Any) -> None:
    actor = Actor.person(world.carol, ip="10.1.2.3", request_id="r-1")
    event = record(actor=actor, action="test.run", obj=world.model("mlp"), after={"a": 1})
    event.refresh_from_db()
    assert (event.actor_name, event.actor_id, event.ip, event.request_id) == (
        "carol",
        world.carol.id,
        "10.1.2.3",
        "r-1",
    )
    assert (event.project_id, event.object_type, event.object_label) == (world.project.id, "registeredmodel", "mlp")


def test_commands(world: Any) -> None:
    out = StringIO()
    call_command("verify_audit", stdout=out)
    call_command("join_token", "--labels", "environment=development, zone=a", stdout=out)
    assert "floj_" in out.getvalue()
    for labels in ("nonsense", "a=b c"):
        with pytest.raises(CommandError):
            call_command("join_token", "--labels", labels, stdout=out)
    call_command("first_start", stdout=out)
    assert '"password": null' in out.getvalue()
    call_command("partitions", stdout=out)
