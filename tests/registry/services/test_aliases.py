"""Aliases: who moves them, where they may point, and what they keep from being archived."""

from __future__ import annotations

import pytest

from registry.errors import Conflict, NotFound, PermissionDenied, QuotaExceeded, StaleWrite, ValidationFailed
from registry.models import Alias, AuditEvent, Membership, ModelVersion, Role, Transition
from registry.selectors.aliases import alias_get, alias_numbers, version_named, with_version_numbers
from registry.services import aliases, versions
from tests.console.conftest import Cast, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    made = make_cast()
    Membership.objects.create(project=made.project, user=made.charlie, role=Role.APPROVER)
    return made


@pytest.fixture
def two(cast: Cast) -> tuple[ModelVersion, ModelVersion]:
    return cast.ready_version(content=b"one"), cast.ready_version(content=b"two")


def test_it_is_made_moved_and_leaves_its_history(cast: Cast, two: tuple[ModelVersion, ModelVersion]) -> None:
    first, second = two
    model, bob = first.model, cast.actor("bob")
    row, made = aliases.alias_set(model=model, name="champion", version=first, actor=bob)
    assert made and alias_get(model, "champion").version == first
    _row, made = aliases.alias_set(model=model, name="champion", version=second, comment="better", actor=bob)
    assert not made and version_named(model, "champion") == second
    aliases.alias_set(model=model, name="champion", version=second, actor=bob)  # nothing changes, nothing is noted
    aliases.alias_delete(model=model, name="champion", actor=bob)
    moves = Transition.objects.filter(object_type="alias", object_id=row.pk).order_by("created_at")
    assert [(one.from_state, one.to_state) for one in moves] == [("", "1"), ("1", "2"), ("2", "")]
    events = AuditEvent.objects.filter(object_type="alias").order_by("created_at")
    assert [one.action for one in events] == ["alias.set", "alias.set", "alias.delete"]
    assert events[1].before == {"version": 1, "is_protected": False}
    with pytest.raises(NotFound):
        alias_get(model, "champion")


def test_only_approvers_touch_a_protected_one(cast: Cast, two: tuple[ModelVersion, ModelVersion]) -> None:
    first, second = two
    model = first.model
    with pytest.raises(PermissionDenied):
        aliases.alias_set(model=model, name="champion", version=first, actor=cast.actor("vera"))
    with pytest.raises(PermissionDenied, match="approver"):
        aliases.alias_set(model=model, name="champion", version=first, is_protected=True, actor=cast.actor("bob"))
    aliases.alias_set(model=model, name="champion", version=first, actor=cast.actor("bob"))
    aliases.alias_set(model=model, name="champion", version=first, is_protected=True, actor=cast.actor("charlie"))
    for protected in (None, False):
        with pytest.raises(PermissionDenied):
            aliases.alias_set(
                model=model, name="champion", version=second, is_protected=protected, actor=cast.actor("bob")
            )
    with pytest.raises(PermissionDenied):
        aliases.alias_delete(model=model, name="champion", actor=cast.actor("bob"))
    row, _made = aliases.alias_set(model=model, name="champion", version=second, actor=cast.actor("charlie"))
    assert row.is_protected and Alias.objects.get().version == second


def test_it_points_at_ready_versions_of_its_model_only(cast: Cast, two: tuple[ModelVersion, ModelVersion]) -> None:
    first, _second = two
    for wrong in (cast.version(), cast.ready_version("wagtail")):
        with pytest.raises(ValidationFailed):
            aliases.alias_set(model=first.model, name="champion", version=wrong, actor=cast.actor("bob"))
    for name in ("latest", "v1", "Champion"):
        with pytest.raises(ValidationFailed):
            aliases.alias_set(model=first.model, name=name, version=first, actor=cast.actor("bob"))


def test_a_version_that_it_names_is_not_archived_but_may_be_quarantined(
    cast: Cast, two: tuple[ModelVersion, ModelVersion]
) -> None:
    first, _second = two
    for name in ("champion", "blue"):
        aliases.alias_set(model=first.model, name=name, version=first, actor=cast.actor("bob"))
    with pytest.raises(Conflict, match="blue, champion"):
        versions.version_archive(version=first, actor=cast.actor("bob"))
    versions.version_quarantine(version=first, reason="wrong labels", actor=cast.actor("alice"))
    assert alias_get(first.model, "champion").version.state == "quarantined"


def test_latest_follows_the_newest_ready_version(cast: Cast, two: tuple[ModelVersion, ModelVersion]) -> None:
    first, second = two
    assert version_named(first.model, "latest") == second
    versions.version_archive(version=second, actor=cast.actor("bob"))
    assert alias_get(first.model, "latest").version == first
    assert alias_numbers(first.model, ["latest", "none", "finch-v1-0a"]) == {"latest": 1}


def test_of_two_who_saw_the_same_one_is_refused(cast: Cast, two: tuple[ModelVersion, ModelVersion]) -> None:
    first, second = two
    model, bob = first.model, cast.actor("bob")
    aliases.alias_set(model=model, name="champion", version=first, seen=aliases.Seen(None), actor=bob)
    seen = aliases.Seen(first.pk)
    aliases.alias_set(model=model, name="champion", version=second, seen=seen, actor=bob)
    with pytest.raises(StaleWrite):
        aliases.alias_set(model=model, name="champion", version=first, seen=seen, actor=bob)
    with pytest.raises(StaleWrite):
        aliases.alias_delete(model=model, name="champion", seen=seen, actor=bob)


def test_there_is_a_limit(cast: Cast, two: tuple[ModelVersion, ModelVersion], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliases, "MAX_ALIASES", 1)
    first, second = two
    aliases.alias_set(model=first.model, name="one", version=first, actor=cast.actor("bob"))
    aliases.alias_set(model=first.model, name="one", version=second, actor=cast.actor("bob"))
    with pytest.raises(QuotaExceeded):
        aliases.alias_set(model=first.model, name="two", version=first, actor=cast.actor("bob"))


def test_routes_by_alias_become_routes_by_number(cast: Cast, two: tuple[ModelVersion, ModelVersion]) -> None:
    first, _second = two
    aliases.alias_set(model=first.model, name="champion", version=first, actor=cast.actor("bob"))
    spec = {"routes": [{"version": "champion", "weight": 90}, {"version": "latest"}, {"version": 7}], "sticky": "x"}
    resolved = with_version_numbers(first.model, spec)
    assert [route["version"] for route in resolved["routes"]] == [1, 2, 7] and resolved["sticky"] == "x"
    with pytest.raises(ValidationFailed) as refused:
        with_version_numbers(first.model, {"routes": [{"version": 1}, {"version": "nobody"}]})
    assert [problem["field"] for problem in refused.value.errors] == ["routes[1].version"]
