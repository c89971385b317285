"""Loads versions with the backends of this node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from serving_node.backends.loader import Backends
from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import normalise
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import ModelCalls
from serving_node.observability.host import GpuProbe
from serving_node.observability.metrics import statistics_for
from serving_node.observability.metrics_config import MetricsConfig
from serving_node.repository.inventory import usable_gpus
from serving_node.repository.loading import LoadOrder
from serving_node.scheduling.cache_scope import ResponseCaching
from serving_node.scheduling.device_limits import check_device_limits
from serving_node.scheduling.host_policies import HostPolicies
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.resizing import placements
from serving_node.scheduling.served_model import ServedModel
from serving_node.scheduling.turns import Turns


class NodeLoader:
    """See ``repository.loading.Loader``. ``gpu_limits``: by GPU, how full it may be when a model is loaded.

    ``allow_code``: False refuses every version that is code, permitted or not.

    ``hosts`` and ``turns``: see ``load_served_model``; all models of a node share them. ``caching`` puts
    the response cache before models whose config asks for it.
    """

    def __init__(
        self,
        backends: Backends,
        gpus: GpuProbe,
        metrics: MetricsConfig,
        calls: ModelCalls,
        *,
        auto_complete: bool,
        gpu_limits: Mapping[int, float],
        hosts: HostPolicies | None = None,
        turns: Turns | None = None,
        caching: ResponseCaching | None = None,
        allow_code: bool = True,
    ) -> None:
        self._backends = backends
        self._gpus = gpus
        self._metrics = metrics
        self._calls = calls
        self._auto_complete = auto_complete
        self._gpu_limits = gpu_limits
        self._hosts = hosts
        self._turns = turns
        self._caching = caching
        self._allow_code = allow_code
        self._gpu_count: int | None = None

    async def __call__(self, order: LoadOrder) -> ServedModel:
        """Return the version, warmed up and ready. Raises InferenceError."""
        if self._gpu_count is None:
            self._gpu_count = await asyncio.to_thread(self._gpus.count)
        gpu_count = usable_gpus(order.config.backend, self._gpu_count)
        if self._gpu_limits:
            await asyncio.to_thread(self._check_limits, order, gpu_count)
        served = await load_served_model(
            name=order.name,
            version=order.version,
            version_dir=order.directory,
            config=order.config,
            backends=self._backends,
            calls=self._calls,
            gpu_count=gpu_count,
            hosts=self._hosts,
            turns=self._turns,
            unit=order.unit,
            auto_complete=self._auto_complete,
            code_permitted=self._allow_code and order.code_permitted,
            on_warming=order.on_warming,
            statistics=order.statistics,
            new_statistics=lambda config: statistics_for(config, self._metrics),
        )
        if self._caching is not None:
            try:
                await self._caching.attach(served, order.directory)
            except BaseException:
                await served.close()
                raise
        return served

    def build_log(self, version_directory: Path) -> str:
        """Return the end of what was said when a version's environment was built, empty when none was."""
        return self._backends.build_log(version_directory)

    def _check_limits(self, order: LoadOrder, gpu_count: int) -> None:
        try:
            config = normalise(order.config, gpu_count=gpu_count)
        except ContractError as error:
            raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error
        memory = {
            index: (gpu.memory_used_bytes, gpu.memory_total_bytes)
            for index, gpu in enumerate(self._gpus.read())
            if gpu.memory_used_bytes is not None and gpu.memory_total_bytes is not None
        }
        check_device_limits(order.name, (one.device for one in placements(config)), self._gpu_limits, memory)
