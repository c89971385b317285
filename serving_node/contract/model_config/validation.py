"""The rules that a config must keep, with Triton's words where Triton has the rule.

Source: Triton's ``ValidateModelConfig``, ``ValidateModelIOConfig``, ``ValidateInstanceGroup``. Rules that only we have
keep a config from reaching outside its model folder, and refuse what could never work.
"""

from __future__ import annotations

from collections.abc import Iterator

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config.cuda_graphs import cuda_graph_problems
from serving_node.contract.model_config.ensemble_rules import ensemble_problems
from serving_node.contract.model_config.normalisation import normalise
from serving_node.contract.model_config.padding import padding_problems
from serving_node.contract.model_config.path_rules import path_problems
from serving_node.contract.model_config.platforms import ENSEMBLE_PLATFORM, known_pair
from serving_node.contract.model_config.scheduling_rules import dynamic_problems, sequence_problems
from serving_node.contract.model_config.state_rules import state_problems
from serving_node.contract.model_config.tensor_rules import tensor_problems
from serving_node.contract.parameters import parameter_problems
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelInstanceGroup

# Source: Triton's --min-supported-compute-capability as it is without the flag.
_LEAST_CAPABILITY = 6.0


def validate(
    config: ModelConfig, *, model_name: str | None = None, gpu_count: int | None = None, require_tensors: bool = True
) -> None:
    """Refuse a config that cannot be served. The rules look at the config with its defaults filled in.

    Args:
        config: normalised or not; it is not changed.
        model_name: name of the model folder, which ``name`` must equal if it is set.
        gpu_count: GPUs of the node, to check GPU ids; None: not known.
        require_tensors: inputs and outputs must be there. False before auto-completion.

    Raises:
        ContractError: the first broken rule; ``field`` is the path of the field.
    """
    for problem in problems(config, model_name=model_name, gpu_count=gpu_count, require_tensors=require_tensors):
        raise problem


def problems(
    config: ModelConfig, *, model_name: str | None = None, gpu_count: int | None = None, require_tensors: bool = True
) -> Iterator[ContractError]:
    """Yield every broken rule of ``config``, in Triton's order; arguments as of ``validate``."""
    named = _named(config, model_name)
    full = normalise(named, gpu_count=gpu_count)
    yield from _repository_problems(named, full, model_name)
    yield from tensor_problems(full, require_tensors=require_tensors)
    yield from state_problems(full)
    if not full.HasField("ensemble_scheduling"):
        yield from _instance_problems(full, gpu_count)
    yield from path_problems(full)
    if full.platform == "tensorrt_plan":
        yield from cuda_graph_problems(full)
    unreadable = list(parameter_problems(full))
    yield from unreadable or padding_problems(full)


def validate_in_repository(config: ModelConfig, model_name: str) -> None:
    """Refuse a config that keeps a model folder from being looked at: all rules but those of tensors, instances and
    file names, which are looked at when a version is loaded and its config is complete.

    Raises:
        ContractError: as of ``validate``.
    """
    named = _named(config, model_name)
    for problem in _repository_problems(named, normalise(named), model_name):
        raise problem


def validate_before_opening(config: ModelConfig, *, gpu_count: int) -> None:
    """Refuse instance groups that this node cannot have, and file names that leave the model's folder.

    These must hold before any file of the model is opened. ``config`` is normalised but not completed.

    Raises:
        ContractError: as of ``validate``.
    """
    for problem in (*_instance_problems(config, gpu_count), *path_problems(config)):
        raise problem


def _named(config: ModelConfig, model_name: str | None) -> ModelConfig:
    named = ModelConfig()
    named.CopyFrom(config)
    if not named.name and model_name:
        named.name = model_name
    return named


def _repository_problems(named: ModelConfig, full: ModelConfig, model_name: str | None) -> Iterator[ContractError]:
    """Yield what is wrong with a config as it is written; ``full`` has its defaults."""
    yield from _name_problems(named, model_name)
    yield from _identity_problems(full)
    if full.HasField("dynamic_batching"):
        yield from dynamic_problems(full)
    if full.HasField("sequence_batching"):
        yield from sequence_problems(full)
    if full.HasField("ensemble_scheduling"):
        yield from ensemble_problems(named)
    elif full.platform == ENSEMBLE_PLATFORM:
        yield ContractError(
            f"ensemble scheduling must be set for ensemble {full.name} whose platform is ensemble",
            field="ensemble_scheduling",
        )
    yield from _cache_problems(full)
    yield from _metric_problems(full)


def _name_problems(config: ModelConfig, model_name: str | None) -> Iterator[ContractError]:
    name = config.name
    if not name:
        yield ContractError("model configuration must specify 'name'", field="name")
    elif name in (".", "..") or name.strip() != name or any(c in "/\\" or not c.isprintable() for c in name):
        yield ContractError(f"model name {name!r} cannot be the name of a folder", field="name")
    if model_name is not None and name != model_name:
        yield ContractError(
            f"unexpected directory name '{model_name}' for model '{name}', directory name must equal model name",
            field="name",
        )


def _identity_problems(config: ModelConfig) -> Iterator[ContractError]:
    name, platform, backend = config.name, config.platform, config.backend
    if not backend and platform != ENSEMBLE_PLATFORM:
        yield ContractError(f"unexpected platform type '{platform}' for {name}", field="platform")
    elif backend and platform == ENSEMBLE_PLATFORM:
        yield ContractError(
            f"Ensemble model '{name}' must have platform type 'ensemble' and empty backend type", field="backend"
        )
    elif not known_pair(platform, backend):
        yield ContractError(f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}", field="platform")
    if config.max_batch_size < 0:
        yield ContractError(f"'max_batch_size' must be non-negative value for {name}", field="max_batch_size")


def _cache_problems(config: ModelConfig) -> Iterator[ContractError]:
    if not config.response_cache.enable:
        return
    if config.HasField("sequence_batching"):
        yield ContractError(
            f"Response Cache does not currently support model {config.name} with sequence batching scheduler. "
            "Please disable the response cache.",
            field="response_cache.enable",
        )
    if config.model_transaction_policy.decoupled:
        yield ContractError(
            f"Response Cache does not currently support model {config.name} with 'decoupled' transaction policy. "
            "Please disable the response cache.",
            field="response_cache.enable",
        )


def _metric_problems(config: ModelConfig) -> Iterator[ContractError]:
    for index, control in enumerate(config.model_metrics.metric_control):
        path = f"model_metrics.metric_control[{index}]"
        if not control.HasField("metric_identifier"):
            yield ContractError("metric control must specify 'metric_identifier'", field=f"{path}.metric_identifier")
        elif not control.metric_identifier.family:
            yield ContractError(
                "metric identifier must specify non-empty 'family'", field=f"{path}.metric_identifier.family"
            )
        if not control.HasField("histogram_options"):
            yield ContractError("metric control must specify 'histogram_options'", field=f"{path}.histogram_options")
        elif not control.histogram_options.buckets:
            yield ContractError(
                "histogram options must specify non-empty 'buckets'", field=f"{path}.histogram_options.buckets"
            )


def _instance_problems(config: ModelConfig, gpu_count: int | None) -> Iterator[ContractError]:
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}]"
        subject = f"instance group {group.name} of model {config.name}"
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        if group.kind in (ModelInstanceGroup.KIND_MODEL, ModelInstanceGroup.KIND_CPU):
            if group.gpus:
                yield ContractError(f"{subject} has kind {kind} but specifies one or more GPUs", field=f"{path}.gpus")
        elif gpu_count is not None:
            yield from _gpu_problems(group, subject, path, gpu_count)
        if group.profile and config.platform != "tensorrt_plan":
            platform = f"platform {config.platform}" if config.platform else "platform"
            yield ContractError(
                f"{subject} and {platform} specifies profile field which is only supported for TensorRT models",
                field=f"{path}.profile",
            )
        elif any(not profile.isdecimal() for profile in group.profile):
            bad = next(profile for profile in group.profile if not profile.isdecimal())
            yield ContractError(
                f"{subject} and platform {config.platform} specifies invalid profile {bad}. The field should contain "
                "the string representation of a non-negative integer.",
                field=f"{path}.profile",
            )


def _gpu_problems(group: ModelInstanceGroup, subject: str, path: str, gpu_count: int) -> Iterator[ContractError]:
    if not group.gpus:
        yield ContractError(f"{subject} has kind KIND_GPU but no GPUs are available", field=f"{path}.kind")
    for gpu in group.gpus:
        if not 0 <= gpu < gpu_count:
            known = ", ".join(str(number) for number in range(gpu_count))
            yield ContractError(
                f"{subject} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum required "
                f"CUDA compute compatibility of {_LEAST_CAPABILITY:f} are: {known}",
                field=f"{path}.gpus",
            )
