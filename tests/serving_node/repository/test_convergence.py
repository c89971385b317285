"""The planner against a simulated node: random desired states, random outcomes, the promises checked after each act."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.contract.control import Desired, DesiredModel, Drain, Route, Unit
from serving_node.contract.states import RouteRole, UnitState
from serving_node.repository.convergence import (
    Action,
    ApplyRoutes,
    Cancel,
    Fetch,
    Limits,
    Load,
    NodeFacts,
    RemoveRoutes,
    Stage,
    StartDrain,
    StopDrain,
    UnitFacts,
    Unload,
    Verify,
    is_settled,
    plan,
)
from serving_node.repository.routes import RouteTable

Key = tuple[str, str]
_DONE = {Fetch: UnitState.FETCHING, Verify: UnitState.VERIFYING, Stage: UnitState.STAGED, Load: UnitState.READY}
_BUSY = {Fetch: UnitState.FETCHING, Verify: UnitState.VERIFYING, Stage: UnitState.STAGED, Load: UnitState.LOADING}


def unit(name: str, *, keep_warm: bool = False) -> Unit:
    return Unit(name, int(name[1:]), f"config-{name}", {}, f"manifest-{name}", (), keep_warm)


def model(*routes: Route, name: str = "m", extra: tuple[Unit, ...] = ()) -> DesiredModel:
    return DesiredModel(name, routes, (*(unit(route.unit) for route in routes), *extra))


@dataclass
class Node:
    """A node whose steps end when the test says so."""

    units: dict[Key, UnitFacts] = field(default_factory=dict)
    applied: dict[str, DesiredModel] = field(default_factory=dict)
    running: dict[Key, Action] = field(default_factory=dict)
    draining: bool = False
    drained: bool = False
    ready_once: set[Key] = field(default_factory=set)

    def facts(self) -> NodeFacts:
        return NodeFacts(dict(self.units), dict(self.applied), self.draining, self.drained)

    def serving(self, name: str) -> set[str]:
        table = self.applied.get(name)
        if table is None:
            return set()
        weighted = RouteTable(table.routes).weighted_units
        return {u for u in weighted if self.units.get((name, u), UnitFacts()).state is UnitState.READY}

    def start(self, action: Action) -> None:
        match action:
            case ApplyRoutes(applied):
                self.applied[applied.name] = applied
            case RemoveRoutes(name):
                del self.applied[name]
            case StartDrain():
                self.draining = self.drained = True
            case StopDrain():
                self.draining = self.drained = False
            case Cancel(name, unit_id):
                self.finish((name, unit_id), ok=False)
            case Unload(name, unit_id):
                key = (name, unit_id)
                assert not self.units[key].busy
                self.units[key] = UnitFacts(UnitState.UNLOADING, busy=True)
                self.running[key] = action
            case Fetch(name, wanted) | Verify(name, wanted) | Stage(name, wanted) | Load(name, wanted):
                key = (name, wanted.unit)
                assert not self.units.get(key, UnitFacts()).busy, "two steps of one unit at once"
                self.units[key] = UnitFacts(_BUSY[type(action)], busy=True)
                self.running[key] = action

    def finish(self, key: Key, *, ok: bool) -> None:
        action = self.running.pop(key)
        if isinstance(action, Unload):
            if action.keep_staged:
                self.units[key] = UnitFacts(UnitState.STAGED)
            else:
                del self.units[key]
        elif ok:
            self.units[key] = UnitFacts(_DONE[type(action)])
        else:
            self.units[key] = UnitFacts(UnitState.FAILED)

    def new_generation(self) -> None:
        for key, fact in list(self.units.items()):
            if fact.state is UnitState.FAILED:
                self.units[key] = UnitFacts()

    def settle(self, desired: Desired, outcome: dict[str, bool] | None = None) -> int:
        """Run until nothing is left to do; return the number of passes."""
        for passes in range(200):
            actions = plan(desired, self.facts(), 0.0)
            for action in actions:
                self.start(action)
            if not actions and not self.running:
                assert is_settled(desired, self.facts())
                return passes
            for key in list(self.running):
                self.finish(key, ok=(outcome or {}).get(key[1], True))
        raise AssertionError("does not converge")


ONE = Desired(1, 1, (model(Route("u1", 100)),))


def test_plan_first_deployment_walks_all_steps_then_routes() -> None:
    node = Node()
    node.settle(ONE)
    assert node.units == {("m", "u1"): UnitFacts(UnitState.READY)}
    assert node.serving("m") == {"u1"}


def uses(*names: str, name: str) -> DesiredModel:
    one = replace(unit("u1"), config={"ensemble_scheduling": {"step": [{"model_name": used} for used in names]}})
    return DesiredModel(name, (Route("u1", 100),), (one,))


def loads(node: Node, desired: Desired, outcome: bool = True) -> list[str]:
    """Return the models in the order in which they are loaded."""
    order: list[str] = []
    for _ in range(100):
        actions = plan(desired, node.facts(), 0.0, Limits(loads=5))
        order += [action.name for action in actions if isinstance(action, Load)]
        for action in actions:
            node.start(action)
        if not actions and not node.running:
            return order
        for key in list(node.running):
            node.finish(key, ok=outcome or not isinstance(node.running[key], Load))
    raise AssertionError("does not converge")


def test_plan_loads_an_ensemble_after_the_models_that_it_names() -> None:
    inner, outer = uses("m", name="inner"), uses("inner", "m", name="outer")
    desired = Desired(1, 1, (outer, inner, model(Route("u1", 100))))
    assert loads(Node(), desired) == ["m", "inner", "outer"]


def test_plan_unloads_an_ensemble_before_its_models() -> None:
    units = {("e", "u1"): UnitFacts(UnitState.READY, uses=frozenset({"m"})), ("m", "u1"): UnitFacts(UnitState.READY)}
    nothing = Desired(1, 2, ())
    assert plan(nothing, NodeFacts(units), 0.0) == [Unload("e", "u1")]
    units["e", "u1"] = replace(units["e", "u1"], state=UnitState.UNLOADING, busy=True)
    assert plan(nothing, NodeFacts(units), 0.0) == []
    del units["e", "u1"]
    assert plan(nothing, NodeFacts(units), 0.0) == [Unload("m", "u1")]


def test_plan_does_not_wait_for_models_that_fail_or_are_not_wanted_or_go_in_a_circle() -> None:
    desired = Desired(1, 1, (uses("m", name="e"), model(Route("u1", 100))))
    assert loads(Node(), desired, outcome=False) == ["m", "e"]
    assert loads(Node(), Desired(1, 1, (uses("nobody", name="e"),))) == ["e"]
    assert sorted(loads(Node(), Desired(1, 1, (uses("e", name="d"), uses("d", name="e"))))) == ["d", "e"]
    idle = DesiredModel("m", (), (unit("u1"),))  # here, but not to be loaded
    assert loads(Node(), Desired(1, 1, (uses("m", name="e"), idle))) == ["e"]


def test_plan_replacement_keeps_old_routes_until_the_new_unit_is_ready() -> None:
    node = Node()
    node.settle(ONE)
    desired = Desired(1, 2, (model(Route("u2", 100)),))
    for _ in range(4):  # fetch, verify, stage, load
        for action in plan(desired, node.facts(), 0.0):
            assert not isinstance(action, ApplyRoutes | Unload)
            node.start(action)
        assert node.serving("m") == {"u1"}
        node.finish(("m", "u2"), ok=True)
    assert plan(desired, node.facts(), 0.0)[0] == ApplyRoutes(desired.models[0])
    node.settle(desired)
    assert node.serving("m") == {"u2"}
    assert ("m", "u1") not in node.units


def test_plan_failed_unit_never_replaces_the_one_that_serves() -> None:
    node = Node()
    node.settle(ONE)
    desired = Desired(1, 2, (model(Route("u1", 50), Route("u2", 50, RouteRole.CANARY)),))
    node.settle(desired, {"u2": False})
    assert node.applied["m"] == ONE.models[0]
    assert node.serving("m") == {"u1"}


def test_plan_failed_replacement_survives_a_restart() -> None:
    """After a restart nothing is loaded; the old unit is not desired any more but is still what serves."""
    node = Node()
    node.settle(ONE)
    desired = Desired(1, 2, (model(Route("u2", 100)),))
    node.settle(desired, {"u2": False})
    restarted = Node(applied=dict(node.applied))
    first = [action for action in plan(desired, restarted.facts(), 0.0, Limits(fetches=1)) if isinstance(action, Fetch)]
    assert first[0].unit.unit == "u1", "what serves comes back first"
    restarted.settle(desired, {"u2": False})
    assert restarted.serving("m") == {"u1"}


def test_plan_canary_alone_does_not_serve_before_live_has_settled() -> None:
    desired = Desired(1, 1, (model(Route("u1", 90), Route("u2", 10, RouteRole.CANARY)),))
    node = Node(units={("m", "u2"): UnitFacts(UnitState.READY), ("m", "u1"): UnitFacts(UnitState.LOADING, busy=True)})
    assert not plan(desired, node.facts(), 0.0)
    node.units["m", "u1"] = UnitFacts(UnitState.FAILED)
    assert ApplyRoutes(desired.models[0]) in plan(desired, node.facts(), 0.0)


def test_plan_unit_without_route_is_staged_only_unless_kept_warm() -> None:
    desired = Desired(1, 1, (model(Route("u1", 100), extra=(unit("u2"), unit("u3", keep_warm=True))),))
    node = Node()
    node.settle(desired)
    assert node.units["m", "u2"].state is UnitState.STAGED
    assert node.units["m", "u3"].state is UnitState.READY


def test_plan_removed_model_is_unrouted_before_it_is_unloaded() -> None:
    node = Node()
    node.settle(ONE)
    empty = Desired(1, 2)
    assert plan(empty, node.facts(), 0.0) == [RemoveRoutes("m")]
    node.settle(empty)
    assert not node.units
    assert not node.applied


def test_plan_unwanted_fetch_is_cancelled() -> None:
    node = Node()
    for action in plan(ONE, node.facts(), 0.0):
        node.start(action)
    assert plan(Desired(1, 2), node.facts(), 0.0) == [Cancel("m", "u1")]


def test_plan_transient_failure_is_retried_when_due_and_permanent_never() -> None:
    facts = NodeFacts({("m", "u1"): UnitFacts(UnitState.FAILED, retry_at=10.0)})
    assert plan(ONE, facts, 9.9) == []
    assert not is_settled(ONE, facts)
    assert plan(ONE, facts, 10.0) == [Fetch("m", ONE.models[0].units[0])]
    for_good = NodeFacts({("m", "u1"): UnitFacts(UnitState.FAILED)})
    assert plan(ONE, for_good, 1e9) == []
    assert is_settled(ONE, for_good)


def test_plan_respects_limits() -> None:
    desired = Desired(1, 1, (model(*(Route(f"u{n}", 10) for n in range(1, 6))),))
    assert len(plan(desired, NodeFacts(), 0.0, Limits(fetches=3))) == 3
    staged = NodeFacts({("m", f"u{n}"): UnitFacts(UnitState.STAGED) for n in range(1, 6)})
    assert len(plan(desired, staged, 0.0, Limits(loads=2))) == 2


def test_plan_drain_is_not_settled_before_requests_are_done() -> None:
    node = Node()
    node.settle(ONE)
    desired = replace(ONE, generation=2, drain=Drain(5.0))
    assert plan(desired, node.facts(), 0.0) == [StartDrain(5.0)]
    node.draining = True
    assert not is_settled(desired, node.facts())
    node.drained = True
    assert is_settled(desired, node.facts())
    assert plan(replace(ONE, generation=3), node.facts(), 0.0) == [StopDrain()]


unit_ids = st.sampled_from([f"u{n}" for n in range(1, 5)])
routes = st.builds(Route, unit_ids, st.integers(0, 100), st.sampled_from(RouteRole))
models = st.builds(
    lambda name, chosen, extra: DesiredModel(
        name,
        tuple({route.unit: route for route in chosen}.values()),
        tuple({u: unit(u) for u in [*(route.unit for route in chosen), *extra]}.values()),
    ),
    st.sampled_from(["a", "b"]),
    st.lists(routes, max_size=3),
    st.lists(unit_ids, max_size=2),
)
desireds = st.lists(models, max_size=2, unique_by=lambda m: m.name)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_plan_never_stops_what_serves_and_converges_when_all_succeed(data: st.DataObject) -> None:
    node = Node()
    for generation, wanted in enumerate(data.draw(st.lists(desireds, min_size=1, max_size=4)), start=1):
        desired = Desired(1, generation, tuple(wanted))
        node.new_generation()
        for _ in range(data.draw(st.integers(0, 12))):
            before = {name: node.serving(name) for name in node.applied}
            for action in plan(desired, node.facts(), 0.0):
                if isinstance(action, Unload | Cancel):
                    table = node.applied.get(action.name)
                    routed = {route.unit for route in table.routes} if table else set()
                    assert action.unit_id not in routed, "a routed unit is never stopped"
                if isinstance(action, ApplyRoutes) and before.get(action.model.name):
                    weighted = RouteTable(action.model.routes).weighted_units
                    ready = {u for u in weighted if node.units[action.model.name, u].state is UnitState.READY}
                    assert ready == weighted, "routes that serve are replaced by ready units only"
                node.start(action)
            if node.running:
                key = data.draw(st.sampled_from(sorted(node.running)))
                node.finish(key, ok=data.draw(st.booleans()))
    node.new_generation()
    last = Desired(1, 99, desired.models)
    node.settle(last)
    assert set(node.applied) == {m.name for m in last.models}
    for m in last.models:
        assert node.applied[m.name] == m
        assert node.serving(m.name) == RouteTable(m.routes).weighted_units
    assert plan(last, node.facts(), 0.0) == []


@given(desireds)
def test_plan_is_idempotent_while_steps_run(wanted: list[DesiredModel]) -> None:
    desired = Desired(1, 1, tuple(wanted))
    node = Node()
    for action in plan(desired, node.facts(), 0.0):
        node.start(action)
    first = set(node.running)
    for action in plan(desired, node.facts(), 0.0, Limits(fetches=len(first) or 1)):
        assert not isinstance(action, Fetch)
