from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.control import Route
from serving_node.contract.states import RouteRole
from serving_node.repository.routes import RouteTable

NINETY_TEN = RouteTable((Route("old", 90), Route("new", 10, RouteRole.CANARY)))
BOTH = {"old", "new"}
points = st.floats(min_value=0, max_value=1, exclude_max=True)


def test_choose_follows_the_weights_exactly() -> None:
    chosen = [NINETY_TEN.choose(BOTH, index / 100) for index in range(100)]
    assert chosen.count("new") == 10
    assert chosen.count("old") == 90


@given(points)
def test_choose_only_returns_ready_units(point: float) -> None:
    assert NINETY_TEN.choose({"new"}, point) == "new"
    assert NINETY_TEN.choose(set(), point) is None


def test_choose_ignores_shadow_held_and_weightless_routes() -> None:
    table = RouteTable((Route("a", 0), Route("b", 50, RouteRole.SHADOW), Route("c", 50, RouteRole.HELD)))
    assert table.choose({"a", "b", "c"}, 0.5) is None
    assert table.weighted_units == frozenset()


def test_choose_sticky_splits_callers_by_weight() -> None:
    keys = [f"caller-{index}" for index in range(4000)]
    share = sum(NINETY_TEN.choose_sticky(BOTH, key) == "new" for key in keys) / len(keys)
    assert 0.08 < share < 0.12


@given(st.lists(st.text(), max_size=50), st.integers(1, 99), st.integers(1, 99))
def test_choose_sticky_raising_a_weight_moves_callers_only_to_that_unit(keys: list[str], low: int, high: int) -> None:
    low, high = sorted((low, high))
    before = RouteTable((Route("old", 100 - low), Route("new", low)))
    after = RouteTable((Route("old", 100 - high), Route("new", high)))
    for key in keys:
        if before.choose_sticky(BOTH, key) == "new":
            assert after.choose_sticky(BOTH, key) == "new"


@given(st.lists(st.text(), max_size=50))
def test_choose_sticky_loss_of_a_unit_moves_only_its_callers(keys: list[str]) -> None:
    table = RouteTable((Route("a", 40), Route("b", 30), Route("c", 30)))
    for key in keys:
        if (unit := table.choose_sticky({"a", "b", "c"}, key)) != "c":
            assert table.choose_sticky({"a", "b"}, key) == unit


def test_live_unit_prefers_live_role_then_weight() -> None:
    table = RouteTable((Route("canary", 90, RouteRole.CANARY), Route("light", 1), Route("heavy", 9)))
    assert table.live_unit({"canary", "light", "heavy"}) == "heavy"
    assert table.live_unit({"canary"}) == "canary"
    assert table.live_unit(set()) is None


@given(points)
def test_shadows_are_sampled(point: float) -> None:
    table = RouteTable((Route("live", 100), Route("copy", 0, RouteRole.SHADOW, 25.0)))
    assert (table.shadows({"live", "copy"}, point) == ["copy"]) == (point < 0.25)
