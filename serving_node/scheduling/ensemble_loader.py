"""From the config of an ensemble to a model that answers: no backend is opened and no instance is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import normalise, validate
from serving_node.contract.model_config.ensemble_models import link_ensemble
from serving_node.contract.parameters import parameter
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import ModelCalls
from serving_node.core.metadata import OutputClasses
from serving_node.observability.statistics import ModelStatistics
from serving_node.scheduling.ensembles import EnsembleScheduler
from serving_node.scheduling.io_rules import IoRules
from serving_node.scheduling.labels import read_classes
from serving_node.scheduling.served_model import ServedModel
from serving_node.scheduling.step_links import pipeline, step_model

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelEnsembling

log = structlog.get_logger(__name__)

MAX_REQUESTS = "flotilla.max_requests"


async def load_ensemble(
    config: ModelConfig,
    calls: ModelCalls,
    *,
    name: str,
    version: int,
    folder: Path,
    unit: str = "",
    statistics: ModelStatistics | None = None,
    new_statistics: Callable[[ModelConfig], ModelStatistics] | None = None,
) -> ServedModel:
    """Return an ensemble that is ready. The models of its steps are ready already. See ``load_served_model``.

    Raises:
        InferenceError: INVALID_ARG, with one sentence why it cannot be served.
    """
    started = time.monotonic()
    models = _models(config, calls)
    config = linked(config, models)
    rules = IoRules(config)
    own = await asyncio.to_thread(read_classes, config, folder)
    classes = OutputClasses(own.has_rows, {**_inherited(config, calls), **own.labels})
    if statistics is None:
        statistics = new_statistics(config) if new_statistics is not None else ModelStatistics()
    limit = parameter(config, MAX_REQUESTS)
    scheduler = EnsembleScheduler(
        pipeline(config, models),
        calls,
        name=name,
        version=version,
        statistics=statistics,
        max_requests=int(limit) if limit is not None else 0,
        max_inflight=config.ensemble_scheduling.max_inflight_requests,
    )
    load_seconds = time.monotonic() - started
    log.info("model.loaded", model=name, version=version, unit=unit, seconds=round(load_seconds, 3))
    return ServedModel(
        name=name,
        version=version,
        unit=unit,
        config=config,
        signature=None,
        metadata=rules.metadata(config),
        rules=rules,
        scheduler=scheduler,
        statistics=statistics,
        max_batch_size=config.max_batch_size,
        load_seconds=load_seconds,
        memory_bytes=0,
        decoupled=config.model_transaction_policy.decoupled,
        classes=classes,
    )


def models_missing(ensemble: str, models: Iterable[str]) -> InferenceError:
    """Return the error for an ensemble some of whose models are not there."""
    names = ", ".join(sorted(set(models)))
    text = f"ensemble {ensemble} contains models that are not available or ambiguous: {names}"
    return InferenceError(ErrorCode.INVALID_ARG, text)


def linked(config: ModelConfig, models: Sequence[ModelConfig]) -> ModelConfig:
    """Return the completed config of an ensemble that fits ``models``, those of its steps in their order.

    Raises:
        InferenceError: INVALID_ARG, it does not hold or does not fit, with Triton's sentence.
    """
    try:
        full = normalise(config)
        validate(full)
        return link_ensemble(full, models)
    except ContractError as error:
        raise InferenceError(ErrorCode.INVALID_ARG, error.message) from error


def _models(config: ModelConfig, calls: ModelCalls) -> list[ModelConfig]:
    models: list[ModelConfig] = []
    missing: list[str] = []
    for step in config.ensemble_scheduling.step:
        try:
            models.append(calls.model_config(*_address(step)))
        except InferenceError:
            missing.append(step.model_name)
    if missing:
        raise models_missing(config.name, missing)
    return models


def _address(step: ModelEnsembling.Step) -> tuple[str, str]:
    version = str(step.model_version) if step.model_version >= 0 else ""
    return step_model(step.model_name, step.model_namespace), version


def _inherited(config: ModelConfig, calls: ModelCalls) -> dict[str, tuple[str, ...]]:
    """Return the labels of outputs that the models of the steps have for them."""
    labels: dict[str, tuple[str, ...]] = {}
    for step in config.ensemble_scheduling.step:
        known = calls.output_classes(*_address(step)).labels
        labels.update({step.output_map[name]: known[name] for name in step.output_map if name in known})
    return labels
