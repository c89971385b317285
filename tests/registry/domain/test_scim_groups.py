"""What providers send about groups, read as changes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.group_roles import groups_in_force
from registry.domain.scim import ScimProblem
from registry.domain.scim_groups import (
    GROUP,
    MemberStep,
    group_conditions,
    group_of,
    group_patch_of,
    members_after,
)

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def patched(*operations: dict[str, Any]) -> Any:
    return group_patch_of({"Operations": list(operations)})


def after(now: set[uuid.UUID], *operations: dict[str, Any]) -> set[uuid.UUID]:
    return members_after(now, patched(*operations).steps)


def test_members_come_and_go_in_every_form() -> None:
    assert after(set(), {"op": "Add", "path": "members", "value": [{"$ref": None, "value": str(A)}]}) == {A}
    assert after({A}, {"op": "add", "value": {"members": [{"value": str(B), "display": "bob"}]}}) == {A, B}
    assert after({A, B}, {"op": "remove", "path": f'members[value eq "{A}"]'}) == {B}
    assert after({A, B}, {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": str(A)}]}) == {B}
    assert after({A, B}, {"op": "remove", "path": "members"}) == set()
    assert after({A, B}, {"op": "remove", "path": "members", "value": [{"value": "nobody"}]}) == {A, B}
    assert after({A}, {"op": "replace", "path": f"{GROUP}:members", "value": [{"value": str(B)}]}) == {B}
    both = ({"op": "remove", "path": "members"}, {"op": "add", "path": "members", "value": {"value": str(A)}})
    assert after({B}, *both) == {A}


def test_names_change() -> None:
    okta = patched({"op": "replace", "value": {"id": "7", "displayName": "New"}})
    assert (okta.names, okta.steps) == ({"display_name": "New"}, ())
    entra = patched({"op": "Replace", "path": "displayName", "value": " New "})
    assert entra.names == {"display_name": "New"}
    assert patched({"op": "remove", "path": "externalId"}).names == {"external_id": ""}
    whole = group_of({"displayName": "ml", "externalId": "8aa1", "members": [{"value": str(A)}], "meta": {}})
    assert whole.names == {"display_name": "ml", "external_id": "8aa1"}
    assert whole.steps == (MemberStep("replace", frozenset({A})),)


WRONG = [
    ({}, "invalidSyntax"),
    ({"Operations": ["x"]}, "invalidSyntax"),
    ({"Operations": [{"op": "move", "path": "members"}]}, "invalidSyntax"),
    ({"Operations": [{"op": "remove"}]}, "noTarget"),
    ({"Operations": [{"op": "add", "value": "x"}]}, "invalidValue"),
    ({"Operations": [{"op": "add", "path": "members", "value": [{"value": "bob"}]}]}, "invalidValue"),
    ({"Operations": [{"op": "add", "path": "members", "value": [{}]}]}, "invalidValue"),
    ({"Operations": [{"op": "add", "path": 'members[value eq "1"]', "value": "x"}]}, "invalidPath"),
    ({"Operations": [{"op": "remove", "path": "displayName"}]}, "mutability"),
    ({"Operations": [{"op": "replace", "path": "displayName", "value": 7}]}, "invalidValue"),
    ({"Operations": [{"op": "replace", "path": "displayName", "value": "x" * 201}]}, "invalidValue"),
    ({"Operations": [{"op": "add", "path": "members", "value": [{"value": str(A)}] * 10_001}]}, "tooMany"),
]


@pytest.mark.parametrize(("document", "kind"), WRONG, ids=range(len(WRONG)))
def test_what_makes_no_sense_is_refused(document: dict[str, Any], kind: str) -> None:
    with pytest.raises(ScimProblem) as refusal:
        group_patch_of(document)
    assert refusal.value.kind == kind


def test_filters() -> None:
    assert group_conditions('displayName eq "ml \\"core\\""') == [("display_name", 'ml "core"')]
    assert group_conditions(f'id eq "{A}" and members eq "{B}"') == [("pk", str(A)), ("members", str(B))]
    assert group_conditions('EXTERNALID EQ "x" and members.value eq "y"') == [("external_id", "x"), ("members", "y")]
    for text in ("", "displayName", 'displayName co "x"', 'displayName eq "x" or id eq "y"', 'id eq "x" and'):
        with pytest.raises(ScimProblem):
            group_conditions(text)


_IDS = st.frozensets(st.integers(0, 5).map(lambda number: uuid.UUID(int=number)))


@given(_IDS, st.lists(st.builds(MemberStep, st.sampled_from(["add", "remove", "replace"]), _IDS), max_size=6))
def test_only_what_steps_name_changes(now: frozenset[uuid.UUID], steps: list[MemberStep]) -> None:
    members = members_after(now, steps)
    assert members <= now.union(*(step.members for step in steps))
    assert members_after(members, steps[-1:]) == members  # the last step again changes nothing


def test_a_claim_says_nothing_about_a_group_that_is_kept() -> None:
    kept = [{"ml", "8aa1"}, {"ops"}]
    assert groups_in_force(["ml", "staff"], kept, []) == {"staff"}
    assert groups_in_force(["8aa1"], kept, [{"ml", "8aa1"}]) == {"ml", "8aa1"}
    assert groups_in_force(["staff"], [], []) == {"staff"}
