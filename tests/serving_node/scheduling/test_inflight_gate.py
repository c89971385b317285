"""How many requests may be in one step at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving_node.scheduling.inflight_gate import InflightGate


def test_who_finds_the_step_full_waits_for_who_leaves() -> None:
    gate: InflightGate[str] = InflightGate(1, 100)
    assert gate.enter("a", 0)
    assert not gate.enter("b", 1)
    assert not gate.enter("c", 2)
    assert gate.leave() == "b"
    assert gate.leave() == "c"
    assert gate.leave() is None
    assert gate.inside == 0


def test_nobody_waits_longer_than_the_patience() -> None:
    gate: InflightGate[str] = InflightGate(1, 100)
    gate.enter("a", 0)
    gate.enter("b", 10)
    gate.enter("c", 20)
    assert gate.due_ns() == 110
    assert gate.overdue(109) == []
    assert gate.overdue(110) == ["b"]
    assert gate.inside == 2
    # two are inside where one may be: the next waits until both have left
    assert gate.leave() is None
    assert gate.leave() == "c"


def test_who_withdraws_is_not_let_in() -> None:
    gate: InflightGate[object] = InflightGate(1, 100)
    first, second, third = object(), object(), object()
    for item in (first, second, third):
        gate.enter(item, 0)
    gate.withdraw(second)
    assert gate.leave() is third
    assert gate.due_ns() is None


@given(st.integers(1, 4), st.lists(st.sampled_from(["enter", "leave", "tick"]), max_size=60))
def test_everybody_gets_in_once_in_order_and_no_more_than_the_limit_by_themselves(
    limit: int, events: list[str]
) -> None:
    gate: InflightGate[int] = InflightGate(limit, 10)
    entered: list[int] = []
    asked = now = pushed = 0
    for event in events:
        if event == "enter":
            if gate.enter(asked, now):
                entered.append(asked)
                assert gate.inside <= limit
            asked += 1
        elif event == "leave" and gate.inside:
            following = gate.leave()
            if following is not None:
                entered.append(following)
                assert gate.inside <= limit
        elif event == "tick":
            now += 4
            late = gate.overdue(now)
            entered += late
            pushed += len(late)
    assert entered == list(range(len(entered)))
    assert len(entered) + len(gate) == asked
