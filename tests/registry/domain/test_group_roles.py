from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from registry.domain.group_roles import Held, Rule, groups_of, role_changes, wanted_roles

RANK = {"viewer": 1, "publisher": 2, "admin": 3}
places, roles, groups = st.sampled_from("abc"), st.sampled_from(sorted(RANK)), st.sampled_from(["ml", "ops", "x"])
rules = st.lists(st.builds(Rule, group=groups, place=places, role=roles))
holdings = st.dictionaries(places, st.builds(Held, role=roles, is_mapped=st.booleans()))


def apply(held: dict[str, Held], changes: dict[str, str | None]) -> dict[str, Held]:
    given_now = {place: Held(role, True) for place, role in changes.items() if role is not None}
    kept = {place: one for place, one in held.items() if place not in changes}
    return {**kept, **given_now}


@given(rules, st.sets(groups), holdings)
def test_roles_that_a_person_gave_never_change(known: list[Rule[str]], mine: set[str], held: dict[str, Held]) -> None:
    after = apply(held, role_changes(wanted_roles(known, mine, RANK), held))
    by_hand = {place: one for place, one in held.items() if not one.is_mapped}
    assert {place: after.get(place) for place in by_hand} == by_hand


@given(rules, st.sets(groups), holdings)
def test_what_a_mapping_gave_is_exactly_what_the_groups_mean(
    known: list[Rule[str]], mine: set[str], held: dict[str, Held]
) -> None:
    wanted = wanted_roles(known, mine, RANK)
    after = apply(held, role_changes(wanted, held))
    mapped = {place: one.role for place, one in after.items() if one.is_mapped}
    by_hand = {place for place, one in held.items() if not one.is_mapped}
    assert mapped == {place: role for place, role in wanted.items() if place not in by_hand}
    assert role_changes(wanted, after) == {}


def test_the_highest_role_counts() -> None:
    known = [Rule("ml", "a", "admin"), Rule("ops", "a", "viewer")]
    assert wanted_roles(known, ["ops", "ml"], RANK) == {"a": "admin"}


def test_a_claim_may_be_a_list_or_one_text() -> None:
    assert groups_of(["a", 1, None, "b"]) == ("a", "b")
    assert groups_of("a") == ("a",)
    assert groups_of({"a": 1}) == groups_of(None) == ()
