"""Models from folders on this machine: what ``tritonserver --model-repository`` does.

A load is atomic over the versions of a model: the old ones serve until all new ones are ready, and when one fails
all old ones stay. Source: Triton's model management documentation, and what a running Triton answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import structlog

from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import IndexEntry
from serving_node.core.request import InferenceRequest
from serving_node.repository import local
from serving_node.repository.dependencies import Dependencies
from serving_node.repository.folders import Folders
from serving_node.repository.known_model import KnownModel, LoadFailure
from serving_node.repository.loading import Loader
from serving_node.repository.local import PollError
from serving_node.repository.model_folder import ModelId
from serving_node.repository.name_locks import NameLocks
from serving_node.repository.polled import PolledModel, PollRules, poll_folder, poll_uploaded
from serving_node.repository.serving_table import ServingTable
from serving_node.repository.sources import Source
from serving_node.repository.used_models import UsedModel, check_ensemble
from serving_node.repository.version_loads import VersionLoads, resize
from serving_node.repository.version_policy import select_versions
from serving_node.scheduling.served_model import ServedModel

log = structlog.get_logger(__name__)


_UNLOAD_DRAIN_SECONDS = 300.0
# What the end of an engine may take beyond the time for requests.
_CLOSE_SLACK_SECONDS = 0.5
_DUPLICATE = "model appears in two or more repositories"
_UNLOADED = "unloaded"
_ON_REQUEST = "unloaded, loads on first request"


class ControlMode(StrEnum):
    """Who decides which models are loaded. Source: Triton's ``--model-control-mode``."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"


class ModelRepository:
    """The models of one or more repositories.

    Concurrency: methods run on the event loop; disk and engines are used in threads. Loads and unloads of one
    name are serialised.
    """

    def __init__(
        self,
        repositories: Sequence[Path | Source],
        loader: Loader,
        *,
        mode: ControlMode = ControlMode.NONE,
        load_at_start: Sequence[str] = (),
        strict_readiness: bool = True,
        parallel_loads: int = 4,
        load_retries: int = 0,
        namespacing: bool = False,
        rules: PollRules | None = None,
        loads_on_request: bool = False,
    ) -> None:
        self._folders = Folders(repositories, namespacing=namespacing, config_name=(rules or PollRules()).config_name)
        self._versions = VersionLoads(loader, parallel_loads, load_retries)
        self._mode = mode
        self._load_at_start = tuple(load_at_start)
        self._strict = strict_readiness
        self._namespacing = namespacing
        self._rules = rules or PollRules()
        self._loads_on_request = loads_on_request
        self._locks = NameLocks()
        self._dependencies = Dependencies()
        self._known: dict[ModelId, KnownModel] = {}
        self._ids: dict[str, set[ModelId]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._started = False
        self.table = ServingTable()

    # -- questions

    def resolve(self, name: str, version: str, request: InferenceRequest | None) -> ServedModel:
        """Return the version that answers. See ``ServingTable.resolve``."""
        return self.table.resolve(self._identify(name) if self._namespacing else name, version, request)

    def sole(self, name: str, version: str) -> ServedModel | None:
        """Return the version that answers whatever the request is. See ``ServingTable.sole``."""
        return None if self._namespacing else self.table.sole(name, version)

    def models(self) -> Iterator[ServedModel]:
        """Yield every ready version."""
        return self.table.models()

    def ready(self) -> bool:
        """Tell whether everything that should serve does; without strict readiness, whether the start is over."""
        return self._started and (not self._strict or self.table.all_ready())

    def index(self) -> list[IndexEntry]:
        """Return the models that the repositories hold now: a row for each known version, or one without a version.

        A model whose folder is gone is not listed, also while it still serves.
        """
        try:
            found = self._folders.find_all()
        except PollError as error:
            raise InferenceError(ErrorCode.INTERNAL, str(error)) from error
        rows: list[IndexEntry] = []
        for key in sorted({*found.paths, *found.duplicates}):
            if key in found.duplicates:
                rows.append(IndexEntry(key.name, "", ModelState.UNAVAILABLE, _DUPLICATE))
            elif not self.table.knows(str(key)):
                unloaded = IndexEntry(key.name, "", ModelState.UNAVAILABLE, _UNLOADED)
                rows.append(unloaded if self._loads_on_request else IndexEntry(key.name))
            else:
                states = sorted(self.table.states(str(key)).items())
                rows += [IndexEntry(key.name, str(version), *state) for version, state in states]
        if self._loads_on_request:
            rows = [replace(row, reason=_ON_REQUEST) if row.reason == _UNLOADED else row for row in rows]
        return rows

    # -- orders

    async def start(self) -> list[str]:
        """Load what the control mode says; return one sentence for each model that failed."""
        if self._mode is ControlMode.EXPLICIT and self._load_at_start != ("*",):
            failures = await self._start_named()
        else:
            failures = await self.poll()
        for failure in failures:
            log.error("model.start_failed", reason=failure.strip())
        self._started = True
        for row in self.table.index():
            log.info("model.status", model=row.name, version=row.version, state=row.state, reason=row.reason)
        return failures

    async def _start_named(self) -> list[str]:
        try:
            await asyncio.to_thread(self._folders.refresh_names)
        except PollError as error:
            return [str(error)]
        outcomes = await asyncio.gather(*map(self._load_at_first, sorted(set(self._load_at_start))))
        return [failure for failure in outcomes if failure]

    async def poll(self) -> list[str]:
        """Let what serves follow the repositories; return one sentence for each model that could not."""
        try:
            found, wanted = await asyncio.to_thread(
                self._folders.look, {key: known.times for key, known in self._known.items()}
            )
        except PollError as error:
            # What serves goes on: a repository that cannot be read now is not an empty one.
            return [str(error)]
        failures = {key: f"failed to poll model '{key}': {_DUPLICATE}" for key in found.duplicates}
        await self._unload_all(wanted.unload)
        polled: dict[ModelId, PolledModel] = {}

        async def poll_one(key: ModelId) -> None:
            try:
                polled[key] = await asyncio.to_thread(poll_folder, found.paths[key], self._rules, None)
            except PollError as error:
                log.error("model.poll_failed", model=str(key), reason=str(error))
                failures[key] = f"failed to load '{key}': {error}"

        await asyncio.gather(*map(poll_one, wanted.load))
        failures |= await self._load_all(polled, polled, gone={key.name for key in wanted.unload})
        for key in polled:
            self._known[key].is_own = True
        return [failures[key] for key in sorted(failures)]

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model; returns when it serves. An unmodified model that serves is left alone.

        Args:
            name: the model's folder.
            config_json: a config that replaces config.pbtxt whole, or None.
            files: contents by ``<version>/<path>``; the model is then built from these only.

        Raises:
            InferenceError: UNAVAILABLE outside explicit mode; INTERNAL for an unknown model or a bad override;
                INVALID_ARG when a version cannot be loaded, which leaves the old versions serving.
        """
        self._refuse_unless_explicit()
        local.check_model_name(name)
        await self.load_any_time(name, config_json, files)

    async def load_any_time(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load a model, whatever the control mode. Raises InferenceError: as of ``load``."""
        try:
            await self._load_name(name, config_json, files)
        except PollError as error:
            log.error("model.poll_failed", model=name, reason=str(error))
            text = f"failed to load '{name}', failed to poll from model repository"
            raise InferenceError(ErrorCode.INTERNAL, text) from error

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Stop serving a model at once; what runs ends in the background. Unknown models are no error.

        Ensembles that use the model go first, and what is inside them is answered while the model still serves.
        ``unload_dependents``: with an ensemble go the models that only it uses and that nobody else asked for.

        Raises:
            InferenceError: UNAVAILABLE outside explicit mode.
        """
        self._refuse_unless_explicit()

        async def find() -> tuple[set[str], list[ModelId]]:
            doomed = self._doomed(name) if unload_dependents else sorted(self._ids.get(name, ()))
            names = {key.name for key in doomed}
            return names | {key.name for key in self._dependencies.dependents(names)}, doomed

        async with self._locks.hold_all({name}, find) as doomed:
            await self._unload_all(doomed)

    async def evict(self, name: str, may_leave: Callable[[], bool]) -> None:
        """Unload a model and return when what it took is free, unless ``may_leave`` says that it is in use now."""

        async def find() -> tuple[set[str], None]:
            return {name} | {key.name for key in self._dependencies.dependents({name})}, None

        async with self._locks.hold_all({name}, find):
            if not may_leave():
                return
            before = set(self._retiring)
            await self._unload_all(sorted(self._ids.get(name, ())))
            leaving = self._retiring - before
        await asyncio.gather(*leaving)

    async def look(self, name: str) -> PolledModel | None:
        """Return a model as its folder has it; None when there is none. Raises PollError."""
        found = await asyncio.to_thread(self._folders.find, name)
        path = next(iter(found.paths.values()), None)
        return None if path is None else await asyncio.to_thread(poll_folder, path, self._rules, None)

    async def close(self, timeout_seconds: float) -> None:
        """Unload everything within the time."""
        closing = [asyncio.ensure_future(one.close(timeout_seconds)) for one in self.table.models()]
        if closing or self._retiring:
            await asyncio.wait({*closing, *self._retiring}, timeout=timeout_seconds + _CLOSE_SLACK_SECONDS)
        for known in self._known.values():
            local.remove(known.temporary)
        await asyncio.to_thread(self._folders.close)

    # -- which models

    def _identify(self, name: str) -> str:
        ids = self._ids.get(name)
        if ids is None and self.table.knows(name):
            return name  # a step of an ensemble names the repository too
        if ids is None:
            raise InferenceError(ErrorCode.INVALID_ARG, f"Request for unknown model: '{name}' is not found")
        if not ids:
            text = f"Identifier of model '{name}' is not found in global map"
            raise InferenceError(ErrorCode.NOT_FOUND, text)
        if len(ids) > 1:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"There are {len(ids)} identifiers of model '{name}' in global map, model namespace must be provided "
                "to resolve ambiguity.",
            )
        return str(next(iter(ids)))

    def _refuse_unless_explicit(self) -> None:
        if self._mode is not ControlMode.EXPLICIT:
            raise InferenceError(
                ErrorCode.UNAVAILABLE, "explicit model load / unload is not allowed if polling is enabled"
            )

    # -- loading

    async def _load_at_first(self, name: str) -> str | None:
        try:
            await self._load_name(name, None, {})
        except PollError as error:
            return f"failed to load '{name}': {error}"
        except InferenceError as error:
            return error.message
        return None

    async def _load_name(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        """Load the folders of a name: one, or one of each repository where names may stand in several.

        Raises:
            PollError: none, too many, or one that cannot be read; those that can be read are loaded all the same.
            InferenceError: INVALID_ARG, a version failed.
        """
        uploaded = await asyncio.to_thread(poll_uploaded, name, files, self._rules, config_json) if files else None

        async def find() -> tuple[set[str], tuple[dict[ModelId, PolledModel], PollError | None]]:
            polled, problem = await self._poll_related(name, config_json, uploaded)
            names = {key.name for key in polled} | {name}
            return names | {key.name for key in self._dependencies.dependents(names)}, (polled, problem)

        async with self._locks.hold_all({name}, find) as (polled, problem):
            asked = [key for key in polled if key.name == name]
            failures = await self._load_all(polled, asked)
            for key in self._ids.get(name, ()):
                self._known[key].is_own = True
        if failures:
            raise InferenceError(ErrorCode.INVALID_ARG, "".join(failures[key] for key in asked if key in failures))
        if problem is not None:
            raise problem

    async def _load_all(
        self, polled: Mapping[ModelId, PolledModel], asked: Collection[ModelId], gone: Collection[str] = ()
    ) -> dict[ModelId, str]:
        """Load models, ensembles after what they use; then those known ensembles again that use one of them.

        ``gone`` are names of models that were unloaded before. Returns why models that were ``asked`` for failed.
        """
        for key, model in polled.items():
            if model.config.HasField("ensemble_scheduling"):
                self._dependencies.put(key, [step.model_name for step in model.config.ensemble_scheduling.step])
            else:
                self._dependencies.drop(key)
        failures: dict[ModelId, str] = {}

        async def load_one(key: ModelId, model: PolledModel) -> None:
            try:
                await self._load(key, model)
            except InferenceError as error:
                if key in asked:
                    failures[key] = error.message

        ensembles = [key for key in polled if polled[key].config.HasField("ensemble_scheduling")]
        await asyncio.gather(*(load_one(key, polled[key]) for key in polled if key not in ensembles))
        for key in self._dependencies.in_order(ensembles):
            await load_one(key, polled[key])
        for key in self._dependencies.dependents({*(key.name for key in polled), *gone}):
            if key not in polled:
                await self._load_again(key)
        return failures

    async def _load_again(self, key: ModelId) -> None:
        """Load an ensemble anew because a model that it uses changed; one that is not valid any more stops serving."""
        known = self._known[key]
        assert known.ensemble is not None
        try:
            await self._load(key, known.ensemble)
        except InferenceError as error:
            log.warning("ensemble.not_valid", model=str(key), reason=error.message)
            self._retire(str(key), self.table.swap(str(key), []), None)

    async def _poll_related(
        self, name: str, config_json: str | None, uploaded: PolledModel | None
    ) -> tuple[dict[ModelId, PolledModel], PollError | None]:
        """Return what must be loaded for a name, with the models that it uses if it is an ensemble.

        Models that cannot be read are left out: an ensemble says itself what it lacks. Raises PollError.
        """
        if uploaded is not None:
            polled: dict[ModelId, PolledModel] = {ModelId("", name): uploaded}
            problem = None
        else:
            polled, problem = await self._poll_name(name, config_json)
        seen, waiting = {name}, _steps(polled.values())
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            try:
                more, step_problem = await self._poll_name(step, None)
            except PollError as error:
                more, step_problem = {}, error
            if step_problem is not None:
                log.warning("model.poll_failed", model=step, reason=str(step_problem))
                if self._ids.get(step):
                    problem = step_problem
            polled |= more
            waiting += _steps(more.values())
        return polled, problem

    async def _poll_name(
        self, name: str, config_json: str | None
    ) -> tuple[dict[ModelId, PolledModel], PollError | None]:
        """Return what must be loaded for a name, and what is wrong with the rest. Ensembles are always loaded."""
        found = await asyncio.to_thread(self._folders.find, name)
        problem = PollError(_DUPLICATE) if found.duplicates else None
        if not found.paths and problem is None:
            problem = PollError("model not found in any model repository")
        polled: dict[ModelId, PolledModel] = {}
        for key, path in found.paths.items():
            try:
                if config_json is not None or await asyncio.to_thread(self._is_modified, key, path):
                    polled[key] = await asyncio.to_thread(poll_folder, path, self._rules, config_json)
                elif (ensemble := self._known[key].ensemble) is not None:
                    polled[key] = ensemble
            except PollError as error:
                problem = error
        return polled, problem

    def _is_modified(self, key: ModelId, path: Path) -> bool:
        known = self._known.get(key)
        return known is None or local.read_times(path, self._rules.config_name).newest() > known.times.newest()

    async def _load(self, key: ModelId, polled: PolledModel) -> None:
        """Load the versions that the policy asks for, then let them replace the old ones together.

        Raises:
            InferenceError: INVALID_ARG, a version failed; what served before goes on.
        """
        known = self._known.setdefault(key, KnownModel())
        self._ids.setdefault(key.name, set()).add(key)
        name = str(key)
        if polled.config.HasField("ensemble_scheduling"):
            polled = self._linked(key, known, polled)
        else:
            known.ensemble = None
        versions = select_versions(polled.config.version_policy, polled.folder.versions)
        if not versions:
            local.remove(polled.temporary)
            self.table.know(name)
            text = f"at least one version must be available under the version policy of model '{name}'"
            raise InferenceError(ErrorCode.INVALID_ARG, f"load failed for model '{name}': {text}\n")
        log.info("model.loading", model=name, versions=versions)
        serving = {served.version: served for served in self.table.versions(name)}
        outcomes = dict(
            zip(
                versions,
                await asyncio.gather(
                    *(self._load_version(key, polled, version, serving.get(version)) for version in versions)
                ),
                strict=True,
            )
        )
        reasons = "".join(
            f"version {version} is at {outcome.state} state: {outcome.reason};"
            for version, outcome in outcomes.items()
            if isinstance(outcome, LoadFailure)
        )
        if reasons:
            self._give_up(name, polled, serving, outcomes)
            known.failure = reasons
            raise InferenceError(ErrorCode.INVALID_ARG, f"load failed for model '{name}': {reasons}\n")
        loaded = [outcome for outcome in outcomes.values() if not isinstance(outcome, LoadFailure)]
        old = known.temporary if known.temporary != polled.temporary else None
        self._retire(name, self.table.swap(name, loaded), old)
        known.temporary = polled.temporary
        known.failure = ""
        known.times = polled.times
        known.fixed_parts = dict.fromkeys(versions, polled.fixed_part)
        log.info("model.loaded_all", model=name, versions=versions)

    async def _load_version(
        self, key: ModelId, polled: PolledModel, version: int, serving: ServedModel | None
    ) -> ServedModel | LoadFailure:
        """Return the version: the one that serves when it can be changed in place, else a new one."""
        known = self._known[key]
        if serving is not None and serving.resize is not None and polled.temporary is None:
            is_same = known.fixed_parts.get(version) == polled.fixed_part
            if is_same and not known.times.version_differs(polled.times, version):
                return await resize(serving, polled.config)
        name = str(key)
        if serving is None:
            self.table.note(name, str(version), version, ModelState.LOADING)
        outcome = await self._versions.load(polled, version)
        if not isinstance(outcome, LoadFailure):
            outcome.namespace = key.namespace
        return outcome

    def _give_up(
        self,
        name: str,
        polled: PolledModel,
        serving: Mapping[int, ServedModel],
        outcomes: Mapping[int, ServedModel | LoadFailure],
    ) -> None:
        """Free what loaded in vain; say in the index what failed, where nothing else serves."""
        in_vain: list[ServedModel] = []
        for version, outcome in outcomes.items():
            if not isinstance(outcome, LoadFailure):
                if outcome is not serving.get(version):
                    in_vain.append(outcome)
                state, reason = ModelState.UNLOADING, ""
            else:
                state, reason = outcome.state, outcome.reason
            if version not in serving:
                self.table.note(name, str(version), version, state, reason)
        self._retire(name, in_vain, polled.temporary)

    def _linked(self, key: ModelId, known: KnownModel, polled: PolledModel) -> PolledModel:
        """Return an ensemble that may be loaded, its steps with the repositories of their models.

        Raises:
            InferenceError: INVALID_ARG, with Triton's sentence about what it lacks or does not fit.
        """
        if known.ensemble is None or not self.table.versions(str(key)):
            known.ensemble = polled

        def find(step: str) -> UsedModel | None:
            used = self._step_model(key, step)
            if used is None:
                return None
            facts = self._known[used]
            return UsedModel(used, self.table.versions(str(used)), facts.failure, facts.ensemble is not None)

        try:
            circle = self._dependencies.circle(key)
            if circle:
                raise InferenceError(ErrorCode.INVALID_ARG, circle)
            config = check_ensemble(polled.config, find)
        except InferenceError as error:
            known.failure = error.message
            text = f"load failed for model '{key}': {error.message}\n"
            raise InferenceError(ErrorCode.INVALID_ARG, text) from error
        known.ensemble = polled = replace(polled, config=config)
        return polled

    def _step_model(self, ensemble: ModelId, step: str) -> ModelId | None:
        """Return the model that a step means: of the same repository, or the only one of the name."""
        own = ModelId(ensemble.namespace, step)
        if own in self._known:
            return own
        known = self._ids.get(step, ())
        return next(iter(known)) if len(known) == 1 else None

    # -- unloading

    def _doomed(self, name: str) -> list[ModelId]:
        """Return the models of a name, with those that only they use and that nobody asked for."""
        doomed = sorted(self._ids.get(name, ()))
        for key in doomed:
            for step in self._dependencies.steps(key.name):
                if all(user in doomed for user in self._dependencies.users(step)):
                    used = sorted(self._ids.get(step, ()))
                    doomed += [one for one in used if one not in doomed and not self._known[one].is_own]
        return doomed

    async def _unload_all(self, doomed: Sequence[ModelId]) -> None:
        """Unload models. Ensembles that use them stop before, the outermost first, and are waited for."""
        names = {key.name for key in doomed}
        ending: list[asyncio.Task[None]] = []
        for key in reversed(self._dependencies.dependents(names)):
            if key in doomed:
                ending += self._unload(key)
            else:
                ending += self._retire(str(key), self.table.swap(str(key), []), None)
        doomed_ensembles = [key for key in doomed if self._dependencies.steps(key.name) and key in self._known]
        for key in reversed(self._dependencies.in_order(doomed_ensembles)):
            ending += self._unload(key)
        rest = [key for key in doomed if key in self._known]
        if ending and rest:
            await asyncio.wait(ending)
        for key in rest:
            self._unload(key)

    def _unload(self, key: ModelId) -> list[asyncio.Task[None]]:
        """Stop sending requests to all versions of a model; they end in the background, as what is returned."""
        known = self._known.pop(key, None)
        self._dependencies.drop(key)
        ids = self._ids.get(key.name)
        if ids is not None:
            ids.discard(key)
            if not self._namespacing and not ids:
                del self._ids[key.name]
        name = str(key)
        if not self.table.knows(name):
            return []
        log.info("model.unloading", model=name)
        return self._retire(name, self.table.swap(name, []), known.temporary if known else None)

    def _retire(self, name: str, served: Sequence[ServedModel], temporary: Path | None) -> list[asyncio.Task[None]]:
        """Drain and close in the background; the index says unloaded afterwards. Returns what does so, if anything."""
        if not served and temporary is None:
            return []

        async def retire() -> None:
            for one in served:
                await one.drain(_UNLOAD_DRAIN_SECONDS)
                await one.close()
                if self.table.states(name).get(one.version, (None, ""))[0] is ModelState.UNLOADING:
                    self.table.note(name, str(one.version), one.version, ModelState.UNAVAILABLE, _UNLOADED)
                log.info("model.unloaded", model=name, version=one.version)
            await asyncio.to_thread(local.remove, temporary)

        task = asyncio.ensure_future(retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        return [task]


def _steps(polled: Iterable[PolledModel]) -> list[str]:
    """Return the names of the models that ensembles use."""
    return [step.model_name for model in polled for step in model.config.ensemble_scheduling.step]
