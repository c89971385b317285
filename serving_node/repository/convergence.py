"""From what a node should do and what it does: what to do next. Pure; time is an argument.

Steps of a unit: fetch its files, verify them, stage a version folder, load it, route to it; and back: unroute,
unload. ``plan`` is level-triggered: it looks at facts only, so a lost, doubled or reordered report costs time and
never correctness. Acting on its answer and asking again with unchanged facts of busy units gives nothing new.

What it promises:

- The old routes of a model keep serving until every weighted unit of the new ones is ready, so a failed unit never
  replaces one that serves.
- Only a model that serves nothing (first deployment, restart) is routed before that: as soon as one of its live
  units is ready, or any weighted unit once all others have settled.
- A unit is unloaded only when no desired and no applied route needs it.
- An ensemble is loaded after the models that its steps name: once they are ready, or have failed for good. When they go
  together it goes first.
- A unit that runs code is unloaded once the desired state takes its permission back, also while routes name it: those
  then go to the other ready units of the model, and it fails for good when it is loaded again.
- What failed for good is tried again only under a new generation; what failed in passing, after its ``retry_at``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from serving_node.contract.control import Desired, DesiredModel, Unit
from serving_node.contract.states import RouteRole, UnitState
from serving_node.repository.routes import RouteTable

UnitKey = tuple[str, str]
"""Served name and unit id."""


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """Where a unit is. ``busy`` while a step runs; otherwise the step named by ``state`` is done.

    ``retry_at`` is set on FAILED units that may be tried again (seconds, any monotonic clock). ``uses`` are the models
    that an ensemble names. ``runs_code``: some of a loaded unit is code, which needs a permission.
    """

    state: UnitState = UnitState.ABSENT
    busy: bool = False
    retry_at: float | None = None
    uses: frozenset[str] = frozenset()
    runs_code: bool = False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node does now. ``applied`` holds, by served name, the routes in force with the units they need.

    ``drained`` says that no request of before the drain runs any more, or that its deadline has passed.
    """

    units: Mapping[UnitKey, UnitFacts] = field(default_factory=dict)
    applied: Mapping[str, DesiredModel] = field(default_factory=dict)
    draining: bool = False
    drained: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may happen at once on one node."""

    fetches: int = 2
    loads: int = 1


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring the files of a unit that are not in the blob store."""

    name: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Verify:
    """Hash the files of a unit and check its digests."""

    name: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Stage:
    """Build the version folder of a unit from its blobs."""

    name: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Load:
    """Load and warm up a staged unit."""

    name: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class ApplyRoutes:
    """Let requests for a model follow these routes from now on."""

    model: DesiredModel


@dataclass(frozen=True, slots=True)
class RemoveRoutes:
    """Take no more requests for a model."""

    name: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Stop a unit that nobody needs, or that may not run any more (``at_once``).

    With ``keep_staged`` its folder stays, else the unit is forgotten.
    """

    name: str
    unit_id: str
    keep_staged: bool = False
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a step that runs for a unit which is no longer wanted."""

    name: str
    unit_id: str


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Take no more requests; finish what runs within the deadline."""

    deadline_seconds: float


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Take requests again."""


Action = Fetch | Verify | Stage | Load | ApplyRoutes | RemoveRoutes | Unload | Cancel | StartDrain | StopDrain

_SETTLED = frozenset({UnitState.READY, UnitState.FAILED})


def plan(desired: Desired, facts: NodeFacts, now: float, limits: Limits | None = None) -> list[Action]:
    """Return what to start now, routes first. An empty list with nothing busy and no retry due means: settled."""
    actions: list[Action] = [*_drain(desired, facts), *_routes(desired, facts)]
    wanted = wanted_units(desired, facts.applied)
    needed = _needed_loaded(desired, facts.applied)
    actions.extend(_retire(facts, wanted, needed))
    actions.extend(_advance(facts, wanted, needed, now, limits or Limits()))
    return actions


def wanted_units(desired: Desired, applied: Mapping[str, DesiredModel]) -> dict[UnitKey, Unit]:
    """Return every unit that must stay on the node: desired, or still serving under the routes in force."""
    wanted: dict[UnitKey, Unit] = {}
    for model in desired.models:
        previous = applied.get(model.name)
        if previous is not None and previous != model:
            routed = {route.unit for route in previous.routes}
            wanted.update({(model.name, unit.unit): unit for unit in previous.units if unit.unit in routed})
        wanted.update({(model.name, unit.unit): unit for unit in model.units})
    return wanted


def is_settled(desired: Desired, facts: NodeFacts) -> bool:
    """Tell whether nothing more can happen under this desired state: all is as wanted or failed for good."""
    if (desired.drain is not None) != facts.draining or set(facts.applied) - {model.name for model in desired.models}:
        return False
    if desired.drain is not None and not facts.drained:
        return False
    needed = _needed_loaded(desired, facts.applied)
    wanted = wanted_units(desired, facts.applied)
    if set(facts.units) - set(wanted):
        return False
    for key in wanted:
        unit = facts.units.get(key, UnitFacts())
        if unit.busy or unit.retry_at is not None:
            return False
        if unit.state not in _SETTLED and (key in needed or unit.state is not UnitState.STAGED):
            return False
    return not any(True for _ in _routes(desired, facts))


def _drain(desired: Desired, facts: NodeFacts) -> Iterator[Action]:
    if desired.drain is not None and not facts.draining:
        yield StartDrain(desired.drain.deadline_seconds)
    elif desired.drain is None and facts.draining:
        yield StopDrain()


def _routes(desired: Desired, facts: NodeFacts) -> Iterator[Action]:
    for model in desired.models:
        if facts.applied.get(model.name) != model and _may_apply(model, facts):
            yield ApplyRoutes(model)
    names = {model.name for model in desired.models}
    for name in facts.applied:
        if name not in names:
            yield RemoveRoutes(name)


def _may_apply(model: DesiredModel, facts: NodeFacts) -> bool:
    """Tell whether the routes of ``model`` may replace those in force."""
    weighted = RouteTable(model.routes).weighted_units
    states = {unit: facts.units.get((model.name, unit), UnitFacts()) for unit in weighted}
    if all(unit.state is UnitState.READY for unit in states.values()):
        return True
    previous = facts.applied.get(model.name)
    if previous is not None and _serves(previous, facts):
        return False
    ready = {unit for unit, fact in states.items() if fact.state is UnitState.READY}
    live = {route.unit for route in model.routes if route.role is RouteRole.LIVE}
    return bool(ready & live) or bool(ready and all(fact.state in _SETTLED for fact in states.values()))


def _serves(model: DesiredModel, facts: NodeFacts) -> bool:
    """Tell whether routes in force answer, or will once their units are back after a restart."""
    for unit in RouteTable(model.routes).weighted_units:
        fact = facts.units.get((model.name, unit), UnitFacts())
        if fact.state is not UnitState.FAILED and fact.state is not UnitState.UNLOADING:
            return True
    return False


def _needed_loaded(desired: Desired, applied: Mapping[str, DesiredModel]) -> set[UnitKey]:
    """Return the units that must be loaded: routed in any role, or kept warm."""
    needed: set[UnitKey] = set()
    for model in desired.models:
        needed.update((model.name, unit.unit) for unit in model.units if unit.keep_warm)
        for routes in (model.routes, applied[model.name].routes if model.name in applied else ()):
            needed.update((model.name, route.unit) for route in routes)
    return needed


def _retire(facts: NodeFacts, wanted: Mapping[UnitKey, Unit], needed: set[UnitKey]) -> Iterator[Action]:
    for key, unit in facts.units.items():
        name, unit_id = key
        # Its routes go first, in a pass of their own: no request may reach a unit that unloads.
        if key not in wanted and not _routed(name, unit_id, facts.applied):
            if not unit.busy:
                if not _is_used(name, facts, wanted):
                    yield Unload(name, unit_id)
            elif unit.state is UnitState.FETCHING:
                yield Cancel(name, unit_id)
        elif key in wanted and unit.state is UnitState.READY and not unit.busy:
            if unit.runs_code and not wanted[key].code_permitted:
                yield Unload(name, unit_id, keep_staged=True, at_once=True)
            elif key not in needed:
                yield Unload(name, unit_id, keep_staged=True)


def _is_used(name: str, facts: NodeFacts, wanted: Mapping[UnitKey, Unit]) -> bool:
    """Tell whether an ensemble that is about to go still has requests for a model."""
    return any(
        name in unit.uses and unit.state in (UnitState.READY, UnitState.UNLOADING)
        for key, unit in facts.units.items()
        if key not in wanted and key[0] != name
    )


def _routed(name: str, unit_id: str, applied: Mapping[str, DesiredModel]) -> bool:
    model = applied.get(name)
    return model is not None and any(route.unit == unit_id for route in model.routes)


def _advance(
    facts: NodeFacts, wanted: Mapping[UnitKey, Unit], needed: set[UnitKey], now: float, limits: Limits
) -> Iterator[Action]:
    busy = [unit.state for unit in facts.units.values() if unit.busy]
    fetches = limits.fetches - busy.count(UnitState.FETCHING)
    loads = limits.loads - busy.count(UnitState.LOADING) - busy.count(UnitState.WARMING)
    for key, unit in _by_urgency(wanted, facts.applied):
        fact = facts.units.get(key, UnitFacts())
        if fact.busy:
            continue
        due = fact.state is UnitState.FAILED and fact.retry_at is not None and now >= fact.retry_at
        if fact.state is UnitState.ABSENT or due:
            if fetches > 0:
                fetches -= 1
                yield Fetch(key[0], unit)
        elif fact.state is UnitState.FETCHING:
            yield Verify(key[0], unit)
        elif fact.state is UnitState.VERIFYING:
            yield Stage(key[0], unit)
        elif (
            fact.state is UnitState.STAGED
            and key in needed
            and loads > 0
            and not _waits(key[0], unit, facts, wanted, needed)
        ):
            loads -= 1
            yield Load(key[0], unit)


def models_used(unit: Unit) -> frozenset[str]:
    """Return the names of the models that the steps of an ensemble name; none for other models."""
    scheduling = unit.config.get("ensemble_scheduling")
    steps = scheduling.get("step") if isinstance(scheduling, dict) else None
    names = [step.get("model_name") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return frozenset(name for name in names if isinstance(name, str))


def _waits(name: str, unit: Unit, facts: NodeFacts, wanted: Mapping[UnitKey, Unit], needed: set[UnitKey]) -> bool:
    """Tell whether a model that an ensemble names is still on its way. One that is not to be loaded at all is not."""
    used = models_used(unit)
    if not used:
        return False
    for key in needed:
        if key[0] in used and not _uses(key[0], name, wanted):
            fact = facts.units.get(key, UnitFacts())
            if fact.retry_at is not None or fact.state not in _SETTLED | {UnitState.UNLOADING}:
                return True
    return False


def _uses(name: str, other: str, wanted: Mapping[UnitKey, Unit]) -> bool:
    """Tell whether a model uses another one or is it, also through others: ensembles in a circle do not wait."""
    waiting, seen = [name], {name}
    while waiting:
        at = waiting.pop()
        if at == other:
            return True
        for key, unit in wanted.items():
            if key[0] == at:
                more = models_used(unit) - seen
                seen |= more
                waiting += more
    return False


def _by_urgency(wanted: Mapping[UnitKey, Unit], applied: Mapping[str, DesiredModel]) -> list[tuple[UnitKey, Unit]]:
    """Return the units that should already serve first (after a restart), then the rest in the order given."""
    return sorted(wanted.items(), key=lambda item: not _routed(item[0][0], item[0][1], applied))
