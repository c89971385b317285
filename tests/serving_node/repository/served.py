"""Served models without an engine, and a loader that does what the test says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import model_config_pb2
from serving_node.core.errors import CodeRefusedError, InferenceError
from serving_node.core.metadata import ModelMetadata
from serving_node.core.request import InferenceRequest
from serving_node.repository.loading import LoadOrder
from serving_node.scheduling.served_model import ServedModel


@dataclass
class FakeScheduler:
    inflight: int = 0
    calls: list[str] = field(default_factory=list)

    def submit(self, request: InferenceRequest) -> None:
        self.calls.append("submit")

    def ready(self) -> bool:
        return True

    def pending_count(self) -> int:
        return 0

    def inflight_count(self) -> int:
        return self.inflight

    async def drain(self, timeout_seconds: float) -> bool:
        self.calls.append("drain")
        return True

    async def close(self, timeout_seconds: float = 10.0) -> None:
        self.calls.append("close")


def served_model(name: str = "m", version: int = 1, unit: str = "") -> ServedModel:
    return ServedModel(
        name=name,
        version=version,
        unit=unit,
        config=model_config_pb2.ModelConfig(name=name),
        signature=None,
        metadata=ModelMetadata(name, (str(version),), "", (), ()),
        rules=cast(Any, None),
        scheduler=FakeScheduler(),
        statistics=cast(Any, None),
        max_batch_size=0,
        load_seconds=0.1,
        memory_bytes=1000,
    )


def calls(served: ServedModel) -> list[str]:
    return cast(FakeScheduler, served.scheduler).calls


@dataclass
class FakeLoader:
    """Loads anything, except code without permission and what ``failing`` has a reason for (by unit id, or version)."""

    failing: dict[str, str] = field(default_factory=dict)
    orders: list[LoadOrder] = field(default_factory=list)
    loaded: list[ServedModel] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def __call__(self, order: LoadOrder) -> ServedModel:
        self.orders.append(order)
        if order.on_warming is not None:
            order.on_warming()
        if self.gate is not None:
            await self.gate.wait()
        if order.config.backend == "python" and not order.code_permitted:
            raise CodeRefusedError(ErrorCode.UNSUPPORTED, "it is code")
        reason = self.failing.get(order.unit or str(order.version))
        if reason:
            raise InferenceError(ErrorCode.INVALID_ARG, reason)
        served = served_model(order.name, order.version, order.unit)
        self.loaded.append(served)
        return served


def request(**values: Any) -> InferenceRequest:
    return InferenceRequest(**{"model_name": "m", "model_version": "", "inputs": [], "on_response": print, **values})
