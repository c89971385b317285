"""Whether an ensemble may be loaded: what it finds of the models that its steps name. Pure.

Source: Triton core, the dependency graph of its model repository manager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.errors import InferenceError
from serving_node.repository.model_folder import ModelId
from serving_node.scheduling.ensemble_loader import linked, models_missing
from serving_node.scheduling.served_model import ServedModel


@dataclass(frozen=True, slots=True)
class UsedModel:
    """A model that a step names: its ready versions, or why there are none."""

    key: ModelId
    versions: Sequence[ServedModel]
    failure: str
    is_ensemble: bool


def check_ensemble(config: ModelConfig, find: Callable[[str], UsedModel | None]) -> ModelConfig:
    """Return the config of an ensemble with the repositories of its models, which are ready and fit.

    ``find`` returns None for a model that is not known, or that may be one of several.

    Raises:
        InferenceError: INVALID_ARG, with Triton's sentence.
    """
    found = {step.model_name: find(step.model_name) for step in config.ensemble_scheduling.step}
    missing = [name for name, used in found.items() if used is None]
    if missing:
        raise models_missing(config.name, missing)
    result = ModelConfig()
    result.CopyFrom(config)
    models: list[ModelConfig] = []
    for step in result.ensemble_scheduling.step:
        used = found[step.model_name]
        assert used is not None
        step.model_namespace = used.key.namespace
        models.append(_version(config.name, step.model_name, step.model_version, used).config)
    linked(result, models)
    return result


def _version(ensemble: str, name: str, version: int, used: UsedModel) -> ServedModel:
    depends = f"ensemble '{ensemble}' depends on '{name}'"
    if not used.versions:
        if used.is_ensemble:
            text = f"{depends} which is not valid. Model '{name}' failed with error: {used.failure}"
        else:
            text = f"{depends} which has no loaded version. Model '{name}' loading failed with error: {used.failure}"
        raise InferenceError(ErrorCode.INVALID_ARG, text)
    wanted = [served for served in used.versions if version in (-1, served.version)]
    if not wanted:
        raise InferenceError(ErrorCode.INVALID_ARG, f"{depends} whose required version {version} is not loaded.")
    return max(wanted, key=lambda served: served.version)
