"""Which units are ready, and which of them answers a request.

Concurrency: everything here runs on the event loop's thread; ``resolve`` is on the hot path.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from serving_node.contract.control import SCRATCH_PREFIX
from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import IndexEntry
from serving_node.core.request import InferenceRequest
from serving_node.repository.routes import RouteTable
from serving_node.scheduling.served_model import ServedModel

_VERSION = re.compile(r"[ \t-\r]*([+-]?[0-9]+)")


@dataclass(slots=True)
class _Model:
    """One served name. ``fixed`` is set when the request cannot change the answer to a call without a version.

    ``stale``: versions that failed once and that nobody asks for any more. ``is_scratch``: only its unit id reaches it.
    """

    name: str
    ready: dict[str, ServedModel] = field(default_factory=dict)
    states: dict[str, tuple[int, ModelState, str]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    routes: RouteTable | None = None
    fixed: ServedModel | None = None
    is_scratch: bool = False

    def refresh(self) -> None:
        """Recompute ``fixed`` after a change of units or routes."""
        self.fixed = None
        if self.routes is None:
            self.fixed = max(self.ready.values(), key=lambda served: served.version, default=None)
        elif len(ready := [unit for unit in self.routes.weighted_units if unit in self.ready]) == 1:
            self.fixed = self.ready[ready[0]]


class ServingTable:
    """The ready units of all models with their routes.

    A model without routes (stand-alone node) answers with its highest ready version; with routes it answers only
    as they say. ``routed`` says which of the two a name unknown so far is. ``chance`` returns numbers in [0, 1).
    """

    def __init__(self, *, routed: bool = False, chance: Callable[[], float] = random.random) -> None:
        self._models: dict[str, _Model] = {}
        self._routed = routed
        self._chance = chance
        self.draining = False

    def resolve(self, name: str, version: str, request: InferenceRequest | None) -> ServedModel:
        """Return the unit that answers. Without a request (metadata, config): the one that stands for the model.

        Raises:
            InferenceError: NOT_FOUND or UNAVAILABLE with Triton's texts.
        """
        model = self._models.get(name)
        if model is None:
            if version:
                parse_version(version)  # a malformed version is said first
            raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        if request is not None:
            if self.draining and not request.inner:
                raise InferenceError(ErrorCode.UNAVAILABLE, "Server is draining and takes no new inference requests")
            if request.unit:
                return self._by_unit(model, request.unit)
        if version:
            return self._by_version(model, version, request)
        if model.fixed is not None:
            return model.fixed
        unit = None if model.routes is None else self._choose(model.routes, model.ready, request)
        if unit is None:
            raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' has no available versions")
        return model.ready[unit]

    def sole(self, name: str, version: str) -> ServedModel | None:
        """Return the unit that answers whatever the request is; None when there is none, or routes choose."""
        model = self._models.get(name)
        if model is None or not version:
            return None if model is None else model.fixed
        candidates = [
            served for served in model.ready.values() if str(served.version) == version and not model.is_scratch
        ]
        return candidates[0] if len(candidates) == 1 else None

    def models(self) -> Iterator[ServedModel]:
        """Yield every ready unit."""
        for model in self._models.values():
            yield from model.ready.values()

    def versions(self, name: str) -> list[ServedModel]:
        """Return the ready units of a model."""
        model = self._models.get(name)
        return [] if model is None else list(model.ready.values())

    def serves(self, name: str) -> bool:
        """Tell whether a request without a version would be answered."""
        model = self._models.get(name)
        if model is None or model.routes is None:
            return bool(model and model.ready)
        return any(unit in model.ready for unit in model.routes.weighted_units)

    def put(self, served: ServedModel) -> ServedModel | None:
        """Make a unit ready; return the one of the same identity that it takes the place of."""
        model = self._model(served.name)
        key = _key(served)
        previous = model.ready.get(key)
        model.ready[key] = served
        model.states[key] = (served.version, ModelState.READY, "")
        model.refresh()
        return previous

    def take(self, name: str, key: str) -> ServedModel | None:
        """Stop sending requests to a unit and return it. ``key`` is the unit id, or the version without units."""
        model = self._models.get(name)
        served = None if model is None else model.ready.pop(key, None)
        if model is not None:
            model.refresh()
        return served

    def swap(self, name: str, units: list[ServedModel]) -> list[ServedModel]:
        """Let these units be all of a model from now on; return those that no longer are, for closing.

        Those are unloading until ``note`` says otherwise; what failed before stays in the index and counts no more.
        """
        model = self._model(name)
        previous, model.ready = model.ready, {_key(served): served for served in units}
        for key, served in previous.items():
            model.states[key] = (served.version, ModelState.UNLOADING, "")
        for key, served in model.ready.items():
            model.states[key] = (served.version, ModelState.READY, "")
        model.stale = {key for key, (_, state, _) in model.states.items() if state is ModelState.UNAVAILABLE}
        model.refresh()
        kept = {id(served) for served in units}
        return [served for served in previous.values() if id(served) not in kept]

    def know(self, name: str) -> None:
        """Remember a model without any version."""
        self._model(name)

    def knows(self, name: str) -> bool:
        """Tell whether the model was ever loaded, or tried."""
        return name in self._models

    def all_ready(self) -> bool:
        """Tell whether every model has versions, and every version that somebody asked for answers."""
        for model in self._models.values():
            if not model.states:
                return False
            for key, (_, state, reason) in model.states.items():
                if state is not ModelState.READY and reason != "unloaded" and key not in model.stale:
                    return False
            if not all(served.ready() for served in model.ready.values()):
                return False
        return True

    def note(self, name: str, key: str, version: int, state: ModelState, reason: str = "") -> None:
        """Record the state of a unit for the index; a ready one is recorded by ``put``."""
        model = self._model(name)
        model.states[key] = (version, state, reason)
        model.stale.discard(key)

    def forget(self, name: str, key: str) -> None:
        """Drop a unit from the index; the last one takes the name with it."""
        model = self._models.get(name)
        if model is not None:
            model.states.pop(key, None)
            if not model.states and not model.ready and not (model.routes and model.routes.routes):
                del self._models[name]

    def set_routes(self, name: str, routes: RouteTable) -> None:
        """Let requests follow these routes from now on."""
        model = self._model(name)
        model.routes = routes
        model.refresh()

    def remove_routes(self, name: str) -> None:
        """Take no more requests without a version for a model."""
        model = self._models.get(name)
        if model is not None:
            model.routes = RouteTable()
            model.refresh()

    def weight(self, name: str, unit: str) -> int:
        """Return the weight in force of a ready unit, else 0."""
        model = self._models.get(name)
        if model is None or model.routes is None or unit not in model.ready:
            return 0
        return model.routes.weight_of(unit)

    def index(self) -> list[IndexEntry]:
        """Return one row for each known version; of two units of one version the ready one counts."""
        rows: list[IndexEntry] = []
        for model in self._models.values():
            if model.is_scratch:
                continue
            by_version: dict[int, tuple[ModelState, str]] = {}
            for version, state, reason in model.states.values():
                if version not in by_version or state is ModelState.READY:
                    by_version[version] = (state, reason)
            for version, (state, reason) in sorted(by_version.items()):
                rows.append(IndexEntry(model.name, str(version), state, reason))
        return rows

    def states(self, name: str) -> dict[int, tuple[ModelState, str]]:
        """Return state and reason of the known versions of a model."""
        model = self._models.get(name)
        known = model.states.values() if model else ()
        return {version: (state, reason) for version, state, reason in known}

    def _model(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = _Model(name, routes=RouteTable() if self._routed else None)
            model.is_scratch = self._routed and name.startswith(SCRATCH_PREFIX)
        return model

    def _choose(
        self, routes: RouteTable, ready: dict[str, ServedModel], request: InferenceRequest | None
    ) -> str | None:
        if request is None:
            return routes.live_unit(ready)
        key = request.sticky_key
        if not key and routes.sticky and routes.sticky in request.parameters:
            key = str(request.parameters[routes.sticky])
        if not key and request.sequence_id:
            # The requests of a sequence share state in one unit.
            key = str(request.sequence_id)
        return routes.choose_sticky(ready, key) if key else routes.choose(ready, self._chance())

    def _by_unit(self, model: _Model, unit: str) -> ServedModel:
        served = model.ready.get(unit)
        if served is None:
            text = f"Request for unknown model: '{model.name}' unit {unit} is not at ready state"
            raise InferenceError(ErrorCode.UNAVAILABLE, text)
        return served

    def _by_version(self, model: _Model, text: str, request: InferenceRequest | None) -> ServedModel:
        version = parse_version(text)
        candidates = {key: served for key, served in model.ready.items() if served.version == version}
        if model.is_scratch:
            raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{model.name}' is not found")
        if not candidates:
            known = [state for number, state, _ in model.states.values() if number == version]
            if ModelState.LOADING in known or ModelState.UNLOADING in known:
                raise InferenceError(
                    ErrorCode.UNAVAILABLE,
                    f"Request for unknown model: '{model.name}' version {version} is not at ready state",
                )
            raise InferenceError(
                ErrorCode.NOT_FOUND, f"Request for unknown model: '{model.name}' version {version} is not found"
            )
        unit = self._choose(model.routes, candidates, request) if model.routes and len(candidates) > 1 else None
        return candidates[unit] if unit else next(iter(candidates.values()))


def parse_version(text: str) -> int:
    """Return the version that a client names, read as Triton does: what follows the digits is ignored.

    Raises:
        InferenceError: INVALID_ARG with Triton's text.
    """
    found = _VERSION.match(text)
    version = int(found[1]) if found and len(found[1]) < 20 else 2**63
    if not -(2**63) <= version < 2**63:
        sentence = f"failed to get model version from specified version string '{text}' (details: stol)"
        raise InferenceError(ErrorCode.INVALID_ARG, f"{sentence}, version should be an integral value > 0")
    if version < 0:
        sentence = f"invalid model version specified '{text}' , version should be an integral value > 0"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    return version


def _key(served: ServedModel) -> str:
    return served.unit or str(served.version)
