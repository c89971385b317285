"""Loads the versions of models: so many at a time, and again where that is asked for."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import from_a_load
from serving_node.repository.known_model import LoadFailure, with_code
from serving_node.repository.loading import Loader, LoadOrder
from serving_node.repository.polled import PolledModel
from serving_node.scheduling.served_model import ServedModel

log = structlog.get_logger(__name__)


class VersionLoads:
    """The loader of a node with its limits. ``retries``: how often a load that failed is tried again."""

    def __init__(self, loader: Loader, parallel: int, retries: int) -> None:
        self._loader = loader
        self._slots = asyncio.Semaphore(parallel)
        self._retries = retries

    async def load(self, polled: PolledModel, version: int) -> ServedModel | LoadFailure:
        """Return a new version, or why there is none."""
        outcome: ServedModel | LoadFailure = LoadFailure(ModelState.UNAVAILABLE, "")
        # a model that loads another one in its own loading holds a slot already: with one more it might wait for itself
        async with contextlib.nullcontext() if from_a_load.get() else self._slots:
            for _ in range(self._retries + 1):
                outcome = await self._load_once(polled, version)
                if not isinstance(outcome, LoadFailure):
                    break
        return outcome

    async def _load_once(self, polled: PolledModel, version: int) -> ServedModel | LoadFailure:
        own = ModelConfig()
        own.CopyFrom(polled.config)
        folder = polled.folder
        try:
            return await self._loader(LoadOrder(folder.name, version, folder.path / str(version), own))
        except InferenceError as error:
            return LoadFailure(ModelState.UNAVAILABLE, with_code(error))
        except Exception as error:
            log.exception("model.load_crashed", model=folder.name, version=version)
            return LoadFailure(ModelState.UNAVAILABLE, f"Internal: unexpected {type(error).__name__} while loading")


async def resize(serving: ServedModel, config: ModelConfig) -> ServedModel | LoadFailure:
    """Bring a version that serves to another number of instances; return it, or why that failed."""
    assert serving.resize is not None
    own = ModelConfig()
    own.CopyFrom(config)
    try:
        await serving.resize(own)
    except InferenceError as error:
        return LoadFailure(ModelState.READY, with_code(error))
    return serving
