"""Who leaves when memory is short: the longest unused, never one that must stay, and no more than needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.repository.eviction import FailedLoads, Held, models_to_unload, with_callers

NAMES = "abcdefgh"
HELD = st.lists(
    st.builds(
        Held,
        st.sampled_from(NAMES),
        st.integers(0, 20),
        st.integers(0, 9),
        st.booleans(),
        st.frozensets(st.sampled_from(NAMES), max_size=3),
    ),
    unique_by=lambda one: one.name,
)


@given(HELD, st.integers(-5, 100))
def test_enough_leaves_and_nothing_too_much(held: list[Held], excess: int) -> None:
    sizes = {one.name: one.size_bytes for one in held}
    free = {one.name for one in held if not one.stays}
    chosen = models_to_unload(held, excess)
    if chosen is None:
        assert sum(sizes[name] for name in free) < excess
        return
    assert set(chosen) <= free
    freed = sum(sizes[name] for name in chosen)
    assert freed >= excess
    assert all(freed - sizes[name] < excess for name in chosen), "each of them is needed"


@given(HELD, st.integers(1, 100))
def test_the_longest_unused_leave_first(held: list[Held], excess: int) -> None:
    chosen = models_to_unload(held, excess) or []
    for name in chosen:
        left = next(one for one in held if one.name == name)
        older = [one for one in held if not one.stays and (one.used_ms, one.name) < (left.used_ms, left.name)]
        # without the one that leaves, all that are older would not have been enough
        assert sum(one.size_bytes for one in older) < excess


@given(HELD)
def test_a_model_is_used_when_its_callers_are(held: list[Held]) -> None:
    counted = {one.name: one for one in with_callers(held)}
    assert set(counted) == {one.name for one in held}
    for one in held:
        for name in one.calls & counted.keys():
            assert counted[name].used_ms >= counted[one.name].used_ms
            assert counted[name].stays or not counted[one.name].stays
        assert counted[one.name].used_ms >= one.used_ms
        assert counted[one.name].stays or not one.stays


def test_a_chain_of_callers_keeps_the_last_one() -> None:
    held = [
        Held("outer", 0, 90, stays=True, calls=frozenset({"middle"})),
        Held("middle", 0, 0, calls=frozenset({"inner"})),
        Held("inner", 10, 0),
        Held("other", 10, 50),
    ]
    assert models_to_unload(with_callers(held), 1) == ["other"]
    assert models_to_unload(with_callers(held), 11) is None


def test_a_failed_load_is_tried_again_later_and_later() -> None:
    failed, error = FailedLoads(), InferenceError(ErrorCode.INVALID_ARG, "no")
    now, pauses = 0.0, []
    for _ in range(9):
        assert failed.refusal("m", now) is None
        failed.note("m", error, now)
        begun = now
        while failed.refusal("m", now) is not None:
            now += 0.5
        pauses.append(now - begun)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    failed.forget("m")
    failed.note("m", error, now)
    assert failed.refusal("m", now) is error
    assert failed.refusal("m", now + 1) is None


def test_names_of_strangers_do_not_pile_up() -> None:
    failed, error = FailedLoads(), InferenceError(ErrorCode.NOT_FOUND, "no")
    for number in range(3000):
        failed.note(f"m{number}", error, 0.0)
    assert failed.refusal("m0", 0.0) is None
    assert failed.refusal("m2999", 0.0) is error
