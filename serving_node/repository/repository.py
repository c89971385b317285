"""Models from folders on this machine: what ``tritonserver --model-repository`` does.

A load is atomic over the versions of a model: the old ones serve until all new ones are ready, and when one fails
all old ones stay. Source: Triton's model management documentation.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import parse_json
from serving_node.contract.proto import model_config_pb2
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import IndexEntry
from serving_node.core.request import InferenceRequest
from serving_node.repository import local
from serving_node.repository.loading import Loader, LoadOrder
from serving_node.repository.serving_table import ServingTable
from serving_node.repository.version_policy import select_versions
from serving_node.scheduling.served_model import ServedModel

log = structlog.get_logger(__name__)

_UNLOAD_DRAIN_SECONDS = 300.0
_DUPLICATE = "model appears in two or more repositories"


class ControlMode(StrEnum):
    """Who decides which models are loaded. Source: Triton's ``--model-control-mode``."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"


@dataclass(slots=True)
class _Loaded:
    """What a name was loaded from. ``modified_ns`` of the folder then; ``temporary`` holds uploaded files."""

    modified_ns: int
    temporary: Path | None = None


class ModelRepository:
    """The models of one or more repository folders.

    Concurrency: methods run on the event loop; disk and engines are used in threads. Loads and unloads of one
    name are serialised.
    """

    def __init__(
        self,
        repositories: Sequence[Path],
        loader: Loader,
        *,
        mode: ControlMode = ControlMode.NONE,
        load_at_start: Sequence[str] = (),
        strict_readiness: bool = True,
        parallel_loads: int = 4,
    ) -> None:
        self._repositories = tuple(repositories)
        self._loader = loader
        self._mode = mode
        self._load_at_start = tuple(load_at_start)
        self._strict = strict_readiness
        self._slots = asyncio.Semaphore(parallel_loads)
        self._locks: dict[str, asyncio.Lock] = {}
        self._loaded: dict[str, _Loaded] = {}
        self._duplicates: set[str] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._started = False
        self.table = ServingTable()

    # -- questions

    def resolve(self, name: str, version: str, request: InferenceRequest | None) -> ServedModel:
        """Return the version that answers. See ``ServingTable.resolve``."""
        return self.table.resolve(name, version, request)

    def models(self) -> Iterator[ServedModel]:
        """Yield every ready version."""
        return self.table.models()

    def ready(self) -> bool:
        """Tell whether everything that should serve does; without strict readiness, whether the start is over."""
        if not self._started or not self._strict:
            return self._started
        if self._duplicates:
            return False
        for name in self._loaded:
            states = self.table.states(name)
            if not states or any(s is not ModelState.READY and why != "unloaded" for s, why in states.values()):
                return False
        return True

    def index(self) -> list[IndexEntry]:
        """Return one row for each known version, and one for each model on disk that was never loaded."""
        rows = [entry for entry in self.table.index() if entry.name not in self._duplicates]
        known = {entry.name for entry in rows}
        rows.extend(
            IndexEntry(name, "", ModelState.UNAVAILABLE, _DUPLICATE)
            if name in self._duplicates or len(paths) > 1
            else IndexEntry(name)
            for name, paths in local.find_models(self._repositories).items()
            if name not in known
        )
        return sorted(rows, key=lambda entry: (entry.name, int(entry.version or 0)))

    # -- orders

    async def start(self) -> list[str]:
        """Load what the control mode says; return one sentence for each model that failed."""
        found = await asyncio.to_thread(local.find_models, self._repositories)
        names = list(found)
        if self._mode is ControlMode.EXPLICIT and self._load_at_start != ("*",):
            names = list(self._load_at_start)
        failures: list[str] = []
        for name, outcome in zip(names, await asyncio.gather(*map(self._try_load, names)), strict=True):
            if outcome is not None:
                failures.append(outcome)
                log.error("model.load_failed", model=name, reason=outcome)
        self._started = True
        return failures

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
        async with self._lock(name):
            await self._load(name, config_json, files)

    async def unload(self, name: str, unload_dependents: bool) -> None:
        """Stop serving a model at once; what runs ends in the background. Unknown models are no error.

        Raises:
            InferenceError: UNAVAILABLE outside explicit mode.
        """
        self._refuse_unless_explicit()
        local.check_model_name(name)
        async with self._lock(name):
            served = self.table.replace(name, []) if name in self._loaded else []
            for one in served:
                self.table.note(name, str(one.version), one.version, ModelState.UNLOADING)
            loaded = self._loaded.get(name)
            if loaded is not None:
                loaded.modified_ns = -1
                self._retire(served, loaded.temporary, noted=True)
                loaded.temporary = None

    async def close(self, timeout_seconds: float) -> None:
        """Unload everything within the time."""
        served = list(self.table.models())
        if self._closing:
            await asyncio.wait(self._closing, timeout=timeout_seconds)
        await asyncio.gather(*(one.close(timeout_seconds) for one in served), return_exceptions=True)
        for loaded in self._loaded.values():
            _remove(loaded.temporary)

    # -- inside

    def _refuse_unless_explicit(self) -> None:
        if self._mode is not ControlMode.EXPLICIT:
            raise InferenceError(
                ErrorCode.UNAVAILABLE, "explicit model load / unload is not allowed if polling is enabled"
            )

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _try_load(self, name: str) -> str | None:
        try:
            async with self._lock(name):
                await self._load(name, None, {})
        except InferenceError as error:
            return error.message
        return None

    async def _load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        paths = await asyncio.to_thread(local.locate_model, self._repositories, name)
        self._duplicates.discard(name)
        if len(paths) > 1:
            self._duplicates.add(name)
        if len(paths) != 1 and not (files and config_json):
            raise _not_polled(name)
        temporary: Path | None = None
        try:
            if files:
                temporary = await asyncio.to_thread(_write_files, name, files)
                model = await asyncio.to_thread(local.read_model, temporary / name)
            else:
                model = await asyncio.to_thread(local.read_model, paths[0])
            loaded = self._loaded.get(name)
            if config_json is None and loaded and loaded.modified_ns >= model.modified_ns and self.table.serves(name):
                return
            config = _override(config_json, model) if config_json is not None else local.read_config(model)
            await self._load_versions(model, config)
        except (OSError, ContractError) as error:
            _remove(temporary)
            log.warning("model.poll_failed", model=name, reason=str(error))
            raise _not_polled(name) from error
        except InferenceError:
            _remove(temporary)
            self._loaded.setdefault(name, _Loaded(-1))
            raise
        previous = self._loaded.get(name)
        # Uploaded files do not stick: the next plain load reads the folder again. A config override does.
        stamp = 0 if files else model.modified_ns
        self._loaded[name] = _Loaded(stamp, temporary)
        if previous is not None:
            _remove(previous.temporary)

    async def _load_versions(self, model: local.LocalModel, config: model_config_pb2.ModelConfig) -> None:
        """Load the versions that the policy asks for, then let them replace the old ones together."""
        versions = select_versions(config.version_policy, model.versions)
        if not versions:
            text = f"at least one version must be available under the version policy of model '{model.name}'"
            log.error("model.load_failed", model=model.name, reason=text)
            raise InferenceError(ErrorCode.INTERNAL, f"failed to load '{model.name}', no version is available")
        serving = {served.version for served in self.table.versions(model.name)}
        for version in versions:
            if version not in serving:
                self.table.note(model.name, str(version), version, ModelState.LOADING)
        outcomes = await asyncio.gather(*(self._load_one(model, version, config) for version in versions))
        ready = [outcome for outcome in outcomes if not isinstance(outcome, InferenceError)]
        if len(ready) == len(versions):
            self._retire(self.table.replace(model.name, ready), None)
            return
        await asyncio.gather(*(served.close() for served in ready))
        reasons = ""
        for version, outcome in zip(versions, outcomes, strict=True):
            reason = outcome.message if isinstance(outcome, InferenceError) else "unloaded"
            if version not in serving:
                self.table.note(model.name, str(version), version, ModelState.UNAVAILABLE, reason)
            if isinstance(outcome, InferenceError):
                reasons += f"version {version} is at UNAVAILABLE state: {reason};\n"
        raise InferenceError(ErrorCode.INVALID_ARG, f"load failed for model '{model.name}': {reasons}")

    async def _load_one(
        self, model: local.LocalModel, version: int, config: model_config_pb2.ModelConfig
    ) -> ServedModel | InferenceError:
        own = model_config_pb2.ModelConfig()
        own.CopyFrom(config)
        async with self._slots:
            try:
                return await self._loader(LoadOrder(model.name, version, model.path / str(version), own))
            except InferenceError as error:
                return error
            except Exception as error:
                log.exception("model.load_crashed", model=model.name, version=version)
                return InferenceError(ErrorCode.INTERNAL, f"unexpected {type(error).__name__} while loading")

    def _retire(self, served: list[ServedModel], temporary: Path | None, *, noted: bool = False) -> None:
        """Drain and close in the background; with ``noted`` the index says unloaded afterwards."""

        async def retire() -> None:
            for one in served:
                await one.drain(_UNLOAD_DRAIN_SECONDS)
                await one.close()
                if noted and self.table.states(one.name).get(one.version, (None, ""))[0] is ModelState.UNLOADING:
                    self.table.note(one.name, str(one.version), one.version, ModelState.UNAVAILABLE, "unloaded")
            _remove(temporary)

        task = asyncio.ensure_future(retire())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _not_polled(name: str) -> InferenceError:
    return InferenceError(ErrorCode.INTERNAL, f"failed to load '{name}', failed to poll from model repository")


def _override(config_json: str, model: local.LocalModel) -> model_config_pb2.ModelConfig:
    config = parse_json(config_json)
    config.ClearField("name")
    return local.identify(config, model)


def _write_files(name: str, files: dict[str, bytes]) -> Path:
    """Write uploaded files into a new private folder; return it. A path that would leave it is an OSError."""
    root = Path(tempfile.mkdtemp(prefix="flotilla-model-"))
    base = root / name
    base.mkdir()
    for relative, content in files.items():
        target = (base / relative).resolve()
        if not target.is_relative_to(base.resolve()):
            shutil.rmtree(root, ignore_errors=True)
            raise OSError(f"'{relative}' leaves the model folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return root


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
