"""The defaults that Triton writes into a config before it uses and shows it."""

from __future__ import annotations

from serving_node.contract.model_config.platforms import fill_backend
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelInstanceGroup

SEQUENCE_IDLE_MICROSECONDS = 1_000_000
# Backends that use few threads per execution get two instances on a CPU, so that one can wait while the other works.
_TWO_INSTANCES_ON_CPU = ("onnxruntime", "tensorflow")
_ON_CPU_ONLY = ("openvino",)


def normalise(config: ModelConfig, *, gpu_count: int | None = 0) -> ModelConfig:
    """Return a copy of ``config`` with every default written out. Normalising twice changes nothing.

    ``gpu_count``: GPUs that the backend can use on this node, numbered from 0. None: not known (on the control plane);
    then instance groups of KIND_AUTO stay so and none gets GPUs.
    """
    result = ModelConfig()
    result.CopyFrom(config)
    policy = result.version_policy
    chosen = policy.WhichOneof("policy_choice")
    if (chosen == "latest" and not policy.latest.num_versions) or not config.HasField("version_policy"):
        policy.latest.num_versions = 1
    fill_backend(result)
    _fill_scheduling(result)
    if not result.HasField("ensemble_scheduling"):
        optimization = result.optimization
        optimization.SetInParent()
        for memory in ("input_pinned_memory", "output_pinned_memory"):
            if not optimization.HasField(memory):
                getattr(optimization, memory).enable = True
        _fill_instance_groups(result, gpu_count)
    return result


def _fill_scheduling(config: ModelConfig) -> None:
    size = config.max_batch_size
    if config.HasField("dynamic_batching"):
        dynamic = config.dynamic_batching
        if not dynamic.preferred_batch_size and size > 0:
            dynamic.preferred_batch_size.append(size)
    elif config.HasField("sequence_batching"):
        sequence = config.sequence_batching
        if not sequence.max_sequence_idle_microseconds:
            sequence.max_sequence_idle_microseconds = SEQUENCE_IDLE_MICROSECONDS
        if sequence.HasField("oldest") and not sequence.oldest.preferred_batch_size and size > 0:
            sequence.oldest.preferred_batch_size.append(size)


def _fill_instance_groups(config: ModelConfig, gpu_count: int | None) -> None:
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        if not group.name:
            group.name = f"{config.name}_{index}"
        if gpu_count is None:
            continue
        if group.kind == ModelInstanceGroup.KIND_AUTO:
            usable = gpu_count > 0 and all(0 <= gpu < gpu_count for gpu in group.gpus)
            usable = usable and config.backend not in _ON_CPU_ONLY
            group.kind = ModelInstanceGroup.KIND_GPU if usable else ModelInstanceGroup.KIND_CPU
        if group.count < 1:
            on_cpu = group.kind == ModelInstanceGroup.KIND_CPU
            group.count = 2 if on_cpu and config.backend in _TWO_INSTANCES_ON_CPU else 1
        if group.kind == ModelInstanceGroup.KIND_GPU and not group.gpus:
            group.gpus.extend(range(gpu_count))
