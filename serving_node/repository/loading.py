"""What the repository needs of whoever loads models: the seam to scheduling and backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serving_node.contract.proto import model_config_pb2
from serving_node.observability.statistics import ModelStatistics
from serving_node.scheduling.served_model import ServedModel


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """One version to load from its folder. ``config`` has name and backend; it is neither completed nor validated.

    ``on_warming`` is called on the loop's thread when the model is loaded and begins to warm up. ``statistics`` are
    those of another unit of the same version, which the new one goes on counting in. ``code_permitted``: whether the
    version may be code.
    """

    name: str
    version: int
    directory: Path
    config: model_config_pb2.ModelConfig
    unit: str = ""
    on_warming: Callable[[], None] | None = None
    statistics: ModelStatistics | None = None
    code_permitted: bool = True


class Loader(Protocol):
    """Loads one version off the loop."""

    async def __call__(self, order: LoadOrder) -> ServedModel:
        """Return the version, warmed up and ready.

        Raises:
            InferenceError: with one sentence why it cannot be loaded.
        """
