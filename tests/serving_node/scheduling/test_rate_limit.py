"""Instances that share resources."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.scheduling.rate_limit import EACH_DEVICE, GLOBAL, Limit, Need, RateLimiter


def run(limiter: RateLimiter, key: str) -> None:
    limiter.ask(key)
    assert limiter.grant() == [key]
    limiter.release(key)


def test_without_limits_there_is_as_much_as_the_neediest_instance_needs() -> None:
    limiter = RateLimiter()
    limiter.add("small", [Need("R", 1)])
    limiter.add("large", [Need("R", 3)])
    for key in ("large", "small"):
        limiter.ask(key)
    assert limiter.grant() == ["small"]  # equal scores: who joined first; then 3 of 3 do not fit beside it
    limiter.release("small")
    assert limiter.grant() == ["large"]


def test_the_first_in_line_is_not_overtaken_by_one_that_would_fit() -> None:
    limiter = RateLimiter([Limit("R", 3)])
    for key, count in (("a", 2), ("b", 2), ("c", 1)):
        limiter.add(key, [Need("R", count)])
        limiter.ask(key)
    assert limiter.grant() == ["a"]
    assert limiter.grant() == []
    limiter.release("a")
    assert limiter.grant() == ["b", "c"]


def test_a_bigger_priority_number_runs_less_often() -> None:
    limiter = RateLimiter()
    limiter.add("often", [Need("R", 1)], priority=1)
    limiter.add("seldom", [Need("R", 1)], priority=2)
    ran = []
    for key in ("often", "seldom"):
        limiter.ask(key)
    for _ in range(300):
        (key,) = limiter.grant()
        ran.append(key)
        limiter.release(key)
        limiter.ask(key)
    assert ran.count("often") == 2 * ran.count("seldom")


def test_resources_of_devices_are_apart() -> None:
    limiter = RateLimiter()
    for device in (0, 1):
        limiter.add(device, [Need("R", 1, device)])
        limiter.ask(device)
    assert limiter.grant() == [0, 1]


def test_a_limit_of_one_device_is_raised_by_that_of_all() -> None:
    limiter = RateLimiter([Limit("R", 1, 0), Limit("R", 2, EACH_DEVICE)])
    for number in range(3):
        limiter.add(number, [Need("R", 1, 0)])
        limiter.ask(number)
    assert limiter.grant() == [0, 1]


def test_a_global_resource_takes_its_limit_from_any_device() -> None:
    limiter = RateLimiter([Limit("R", 2, 7)])
    limiter.add("a", [Need("R", 2, GLOBAL)])
    run(limiter, "a")


def test_too_little_is_refused_and_changes_nothing() -> None:
    limiter = RateLimiter([Limit("R", 2)])
    limiter.add("a", [Need("R", 2)])
    with pytest.raises(InferenceError) as caught:
        limiter.add("b", [Need("R", 3)])
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == (
        'Resource count for "R" is limited to 2 which will prevent scheduling of one or more model instances,'
        " the minimum required count is 3"
    )
    run(limiter, "a")


def test_a_resource_that_no_limit_names_is_not_there() -> None:
    with pytest.raises(InferenceError, match='"S" is limited to 0'):
        RateLimiter([Limit("R", 2)]).add("a", [Need("S", 1)])


def test_a_resource_is_either_global_or_of_a_device() -> None:
    limiter = RateLimiter()
    limiter.add("a", [Need("R", 1, GLOBAL)])
    with pytest.raises(InferenceError, match=r'Resource "R" is present as both global and device-specific'):
        limiter.add("b", [Need("R", 1, 0)])


def test_who_withdraws_lets_the_next_one_run() -> None:
    limiter = RateLimiter()
    for key, count in (("a", 2), ("b", 1)):
        limiter.add(key, [Need("R", count)])
        limiter.ask(key)
    limiter.withdraw("a")
    assert limiter.grant() == ["b"]


def test_what_an_instance_held_is_free_when_it_leaves() -> None:
    limiter = RateLimiter()
    for key in ("a", "b"):
        limiter.add(key, [Need("R", 1)])
        limiter.ask(key)
    assert limiter.grant() == ["a"]
    limiter.remove("a")
    limiter.release("a")
    assert limiter.grant() == ["b"]


class Machine(RuleBasedStateMachine):
    """Random instances: nothing is taken twice, and whoever can run does."""

    def __init__(self) -> None:
        super().__init__()
        self.limiter = RateLimiter([Limit("R", 4), Limit("S", 2)])
        self.needs: dict[int, dict[str, int]] = {}
        self.waiting: set[int] = set()
        self.running: set[int] = set()
        self.next = 0

    @rule(r=st.integers(0, 4), s=st.integers(0, 2), priority=st.integers(0, 3))
    def add(self, r: int, s: int, priority: int) -> None:
        self.limiter.add(self.next, [Need("R", r), Need("S", s, 0)], priority)
        self.needs[self.next] = {"R": r, "S": s}
        self.next += 1

    @precondition(lambda self: self.needs.keys() - self.waiting - self.running)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.needs.keys() - self.waiting - self.running)))
        self.limiter.ask(key)
        self.waiting.add(key)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.waiting)))
        self.limiter.withdraw(key)
        self.waiting.remove(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.limiter.release(key)
        self.running.remove(key)

    @precondition(lambda self: self.needs)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.needs)))
        self.limiter.remove(key)
        del self.needs[key]
        self.waiting.discard(key)
        self.running.discard(key)

    @rule()
    def grant(self) -> None:
        for key in self.limiter.grant():
            assert isinstance(key, int)
            assert key in self.waiting
            self.waiting.remove(key)
            self.running.add(key)

    @invariant()
    def nothing_is_taken_twice(self) -> None:
        for resource, total in (("R", 4), ("S", 2)):
            assert sum(self.needs[key][resource] for key in self.running) <= total

    @invariant()
    def somebody_runs_when_somebody_can(self) -> None:
        if self.waiting and not self.running:
            self.grant()
            assert self.running


TestMachine = Machine.TestCase
