"""A request for a model that is not loaded: it waits for one load, and is answered once whatever becomes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.observability.statistics import ModelStatistics
from serving_node.repository.loading import LoadOrder
from serving_node.repository.on_request import OnRequestLimits, OnRequestModels
from serving_node.repository.repository import ControlMode, ModelRepository
from serving_node.scheduling.served_model import ServedModel

from .served import FakeScheduler, served_model


@dataclass
class Node:
    """A repository that loads on request, with models that answer when the test lets them."""

    folder: Path
    limits: OnRequestLimits = field(default_factory=OnRequestLimits)
    failing: dict[str, str] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    answers: list[tuple[str, InferenceResponse]] = field(default_factory=list)
    schedulers: list[FakeScheduler] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.repository = ModelRepository([self.folder], self._load, mode=ControlMode.EXPLICIT, loads_on_request=True)
        self.models = OnRequestModels(self.repository, self.limits, lambda: self.now)

    async def _load(self, order: LoadOrder) -> ServedModel:
        self.loads.append(order.name)
        if order.name in self.gates:
            await self.gates[order.name].wait()
        if order.name in self.failing:
            raise InferenceError(ErrorCode.INVALID_ARG, self.failing[order.name])
        served = served_model(order.name, order.version)
        served.config.CopyFrom(order.config)
        served.memory_bytes = self.measured.get(order.name, 0)
        served.statistics = ModelStatistics()
        self.schedulers.append(self.scheduler(served))
        return served

    def add(self, name: str, size: int = 10, config: str = "") -> None:
        version = self.folder / name / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").write_bytes(b"x" * size)
        if config:
            (self.folder / name / "config.pbtxt").write_text(config)

    def submit(self, request: InferenceRequest) -> None:
        """Do what the dataplane does."""
        try:
            served = self.repository.resolve(request.model_name, request.model_version, request)
        except InferenceError:
            if self.models.take(request, self.submit):
                return
            raise
        self.scheduler(served).inflight += 1
        served.scheduler.submit(request)

    def scheduler(self, served: ServedModel) -> FakeScheduler:
        return cast(FakeScheduler, served.scheduler)

    def ask(self, name: str, id: str = "", **values: Any) -> InferenceRequest:
        def on_response(response: InferenceResponse) -> None:
            self.answers.append((id, response))

        request = InferenceRequest(name, values.pop("version", ""), [], on_response, id, **values)
        self.submit(request)
        return request

    def served(self, name: str) -> ServedModel:
        return next(served for served in self.repository.models() if served.name == name)

    def change(self, act: str, name: str) -> None:
        """Let a model answer all it has, load, or fail to load; or let time pass."""
        if act == "finish" and name in self.loaded():
            self.scheduler(self.served(name)).inflight = 0
        elif act == "open":
            self.gates[name].set()
        elif act == "break":
            self.failing[name] = "broken"
        elif act == "later":
            self.now += 2.0

    def loaded(self) -> set[str]:
        return {served.name for served in self.repository.models()}

    def use(self, name: str, at_ms: int) -> None:
        """The model has answered all it had, last at that time."""
        served = self.served(name)
        self.scheduler(served).inflight = 0
        served.statistics.last_inference_ms = at_ms
        self.models._loaded_ms[name] = 0

    async def bring(self, name: str, at_ms: int) -> None:
        self.ask(name)
        await self.until(lambda: name in self.loaded() and not self.models.waiting)
        self.use(name, at_ms)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)

    def errors(self) -> list[str]:
        return [response.error.message for _, response in self.answers if response.error is not None]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def budget(tmp_path: Path, size: int, **more: Any) -> Node:
    return Node(tmp_path, OnRequestLimits(size, **more))


async def test_many_first_requests_cause_one_load_and_all_go_on(node: Node) -> None:
    node.add("m")
    node.gates["m"] = asyncio.Event()
    for number in range(50):
        node.ask("m", str(number))
    await node.until(lambda: node.loads == ["m"])
    assert node.models.waiting == 50
    node.gates["m"].set()
    await node.until(lambda: node.models.waiting == 0)
    assert node.loads == ["m"]
    assert node.scheduler(node.served("m")).calls == ["submit"] * 50
    node.ask("m")
    assert node.loads == ["m"], "an ordinary request now"
    assert node.answers == []


async def test_a_version_is_loaded_by_the_policy_of_the_model(node: Node) -> None:
    node.add("m")
    node.ask("m", version="7")
    await node.until(lambda: bool(node.answers))
    assert node.errors() == ["Request for unknown model: 'm' version 7 is not found"]
    with pytest.raises(InferenceError, match="version 7 is not found"):
        node.ask("m", version="7")


async def test_a_failed_load_answers_all_and_is_tried_again_after_a_pause(node: Node) -> None:
    node.add("m")
    node.failing["m"] = "no weights"
    for number in range(3):
        node.ask("m", str(number))
    await node.until(lambda: len(node.answers) == 3)
    assert all("no weights" in error for error in node.errors())
    assert node.loads == ["m"]
    node.ask("m", "again")
    await node.until(lambda: len(node.answers) == 4)
    assert node.loads == ["m"], "not tried again at once"
    assert "no weights" in node.errors()[-1]
    node.now = 1.0
    del node.failing["m"]
    node.ask("m")
    await node.until(lambda: "m" in node.loaded())
    assert node.loads == ["m", "m"]


@pytest.mark.parametrize("name", ["nobody", "../etc", "", ".git", "a/b"])
async def test_an_unknown_model_is_refused_as_ever(node: Node, name: str) -> None:
    node.ask(name)
    await node.until(lambda: bool(node.answers))
    assert node.errors() == [f"Request for unknown model: '{name}' is not found"]
    node.ask(name)
    await node.until(lambda: len(node.answers) == 2)
    assert node.errors()[0] == node.errors()[1]
    assert node.loads == []


async def test_a_config_that_cannot_be_read_is_said(node: Node) -> None:
    node.add("m", config="nonsense {")
    node.ask("m")
    await node.until(lambda: bool(node.answers))
    assert node.errors() == ["failed to load 'm', failed to poll from model repository"]


async def test_who_waits_too_long_or_leaves_is_answered_and_the_load_goes_on(node: Node) -> None:
    node.add("m")
    node.gates["m"] = asyncio.Event()
    late = node.ask("m", "late", deadline_ns=time.monotonic_ns() + 1)
    gone = node.ask("m", "gone")
    gone.cancel()
    gone.cancel()
    node.ask("m", "patient")
    await node.until(lambda: len(node.answers) == 2)
    late.cancel()
    found = {id: response.error for id, response in node.answers}
    assert found["late"] is not None and found["late"].code is ErrorCode.UNAVAILABLE
    assert "was not loaded within" in found["late"].message
    assert found["gone"] is not None and found["gone"].code is ErrorCode.CANCELLED
    assert node.models.waiting == 1
    node.gates["m"].set()
    await node.until(lambda: node.models.waiting == 0)
    assert node.scheduler(node.served("m")).calls == ["submit"]
    assert len(node.answers) == 2


async def test_no_more_wait_than_may(tmp_path: Path) -> None:
    node = budget(tmp_path, 0, most_waiting=2)
    node.add("a")
    node.add("b")
    node.gates |= {"a": asyncio.Event(), "b": asyncio.Event()}
    node.ask("a")
    node.ask("b")
    node.ask("a", "third")
    await node.until(lambda: bool(node.answers))
    assert node.errors() == ["model 'a' is not loaded, and too many requests wait for models to be loaded"]
    for gate in node.gates.values():
        gate.set()
    await node.until(lambda: node.models.waiting == 0)
    assert node.loaded() == {"a", "b"}


async def test_the_longest_unused_makes_room(tmp_path: Path) -> None:
    node = budget(tmp_path, 25)
    for name in "abc":
        node.add(name)
    await node.bring("a", at_ms=300)
    await node.bring("b", at_ms=200)
    await node.bring("c", at_ms=100)
    assert node.loaded() == {"a", "c"}
    rows = {row.name: (row.state, row.reason) for row in node.repository.index()}
    assert rows["b"] == (ModelState.UNAVAILABLE, "unloaded, loads on first request")
    assert rows["a"] == (ModelState.READY, "")
    await node.bring("b", at_ms=400)
    assert node.loaded() == {"a", "b"}


async def test_what_works_or_is_kept_does_not_leave(tmp_path: Path) -> None:
    node = budget(tmp_path, 35, wait_seconds=1.5)
    node.add("kept", config='parameters { key: "flotilla.keep_loaded" value { string_value: "true" } }')
    node.add("talks", config="max_batch_size: 1 sequence_batching { max_sequence_idle_microseconds: 60000000 }")
    for name in ("busy", "more"):
        node.add(name)
    await node.bring("kept", at_ms=1)
    await node.bring("busy", at_ms=2)
    await node.bring("talks", at_ms=int(time.time() * 1000))
    node.scheduler(node.served("busy")).inflight = 1
    node.ask("more", "first")
    await node.until(lambda: bool(node.answers))
    assert node.errors() == ["model 'more' was not loaded within 1.5 seconds"]
    assert node.loaded() == {"kept", "busy", "talks"}
    await node.until(lambda: not node.models._tasks)
    node.now = 5.0
    node.ask("more")
    node.use("busy", at_ms=2)
    await node.until(lambda: node.models.waiting == 0)
    assert node.loaded() == {"kept", "talks", "more"}


async def test_a_model_larger_than_the_budget_is_refused(tmp_path: Path) -> None:
    node = budget(tmp_path, 25)
    node.add("small")
    node.add("large", size=26)
    node.add("grows", size=1)
    node.measured["grows"] = 99
    await node.bring("small", at_ms=1)
    node.ask("large")
    node.ask("grows")
    await node.until(lambda: len(node.answers) == 2)
    assert sorted(node.errors()) == [
        "model 'grows' takes 99 bytes, more than the 25 that all models together may take",
        "model 'large' takes 26 bytes, more than the 25 that all models together may take",
    ]
    assert node.loaded() == {"small"}, "nothing else had to leave for it"


async def test_the_config_may_say_what_a_model_takes(tmp_path: Path) -> None:
    node = budget(tmp_path, 25)
    node.add("m", config='parameters { key: "flotilla.memory_bytes" value { string_value: "30" } }')
    node.ask("m")
    await node.until(lambda: bool(node.answers))
    assert "takes 30 bytes" in node.errors()[0]


async def test_two_that_come_together_do_not_wait_for_each_other(tmp_path: Path) -> None:
    node = budget(tmp_path, 10)
    node.add("a", size=6)
    node.add("b", size=6)
    node.ask("a")
    node.ask("b")
    await node.until(lambda: node.models.waiting == 1)
    (first,) = node.loaded()
    node.use(first, at_ms=1)
    await node.until(lambda: node.models.waiting == 0)
    (second,) = node.loaded()
    assert {first, second} == {"a", "b"}


async def test_an_order_to_load_makes_room_too(tmp_path: Path) -> None:
    node = budget(tmp_path, 15)
    node.add("a")
    node.add("b")
    await node.bring("a", at_ms=1)
    await node.repository.load("b", None, {})
    await node.models.settle("b")
    assert node.loaded() == {"b"}


async def test_the_end_answers_all_who_wait(node: Node) -> None:
    node.add("m")
    node.gates["m"] = asyncio.Event()
    node.ask("m")
    await node.until(lambda: node.loads == ["m"])
    node.models.close()
    assert node.errors() == ["model 'm' is not loaded any more: the server is stopping"]
    with pytest.raises(InferenceError, match="has no available versions"):
        node.ask("m")


async def test_one_caller_that_breaks_does_not_hurt_the_others(node: Node) -> None:
    node.add("m")

    def broken(error: InferenceError | None) -> None:
        raise RuntimeError

    told: list[InferenceError | None] = []
    assert node.models.wait("m", broken) is not None
    assert node.models.wait("m", told.append) is not None
    await node.until(lambda: bool(told))
    assert told == [None]
    assert node.models.wait("m", told.append) is None, "it serves"


ACTS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "ask", "finish", "cancel", "open", "break", "later"]), st.integers(0, 5)),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(ACTS)
def test_whatever_happens_each_request_has_one_end_and_memory_is_kept(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    """Random arrivals, answers, cancellations, slow and failing loads."""
    asyncio.run(_random_life(tmp_path_factory.mktemp("models"), acts))


async def _random_life(folder: Path, acts: list[tuple[str, int]]) -> None:
    node = Node(folder, OnRequestLimits(25, wait_seconds=5.0, most_waiting=4))
    names = [f"m{number}" for number in range(6)]
    for name in names:
        node.add(name)
        node.gates[name] = asyncio.Event()
    requests: list[InferenceRequest] = []
    for number, (act, which) in enumerate(acts):
        if act == "ask":
            requests.append(node.ask(names[which], str(number)))
        elif act == "cancel" and requests:
            requests[which % len(requests)].cancel()
        else:
            node.change(act, names[which])
        busy = {served.name for served in node.repository.models() if node.scheduler(served).inflight}
        await asyncio.sleep(0.002)
        assert busy <= node.loaded(), "nothing leaves while it works"
        assert 10 * len(node.loaded()) <= 25
    for gate in node.gates.values():
        gate.set()

    def is_over() -> bool:
        for served in node.repository.models():
            node.scheduler(served).inflight = 0
        return node.models.waiting == 0

    await node.until(is_over)
    await node.until(lambda: not node.models._tasks)
    await asyncio.sleep(0)
    submitted = sum(served.calls.count("submit") for served in node.schedulers)
    answered = [id for id, _ in node.answers]
    assert len(set(answered)) == len(answered), "nobody is answered twice"
    assert submitted + len(answered) == len(requests), "nobody is lost"
