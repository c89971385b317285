"""Rules of dynamic batching and sequence batching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from serving_node.contract.errors import ContractError
from serving_node.contract.proto import model_config_pb2 as pb
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelQueuePolicy, ModelSequenceBatching

_Control = ModelSequenceBatching.Control
_CORRELATION_TYPES = (pb.TYPE_UINT64, pb.TYPE_INT64, pb.TYPE_UINT32, pb.TYPE_INT32, pb.TYPE_STRING)
_PAIRS = ("int32_false_true", "fp32_false_true", "bool_false_true")


_BATCH_LIBRARY = "TRITON_BATCH_STRATEGY_PATH"


def batch_library_sentence(model: str) -> str:
    """Return why a model whose batches are formed by a library of its own is refused."""
    return f"model '{model}' wants a shared library to form its batches, which this node does not load"


def dynamic_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield the broken rules of ``dynamic_batching``."""
    dynamic, name = config.dynamic_batching, config.name
    yield from _preferred_problems(
        dynamic.preferred_batch_size, config, "dynamic_batching", "dynamic batching preferred size"
    )
    levels = dynamic.priority_levels
    if levels:
        if not 1 <= dynamic.default_priority_level <= levels:
            yield ContractError(
                f"default priority level must be in range [1, {levels}] for {name}",
                field="dynamic_batching.default_priority_level",
            )
        for level in sorted(dynamic.priority_queue_policy):
            if not 1 <= level <= levels:
                yield ContractError(
                    f"priority queue policy must have priority level in range [1, {levels}] for {name}",
                    field=f"dynamic_batching.priority_queue_policy[{level}]",
                )
    if dynamic.preserve_ordering:
        yield from _ordering_problems(config)
    if _BATCH_LIBRARY in config.parameters:
        yield ContractError(batch_library_sentence(name), field=f"parameters[{_BATCH_LIBRARY}].string_value")
    target, bound = "flotilla.p99_target_microseconds", "flotilla.p99_max_delay_microseconds"
    if bound in config.parameters and target not in config.parameters:
        yield ContractError(
            f"parameter '{bound}' means nothing without '{target}'", field=f"parameters[{bound}].string_value"
        )


def _ordering_problems(config: ModelConfig) -> Iterator[ContractError]:
    dynamic = config.dynamic_batching
    if dynamic.priority_levels > 1:
        yield ContractError(
            f"Only one priority level is allowed when 'preserve_ordering' is true for {config.name}",
            field="dynamic_batching.preserve_ordering",
        )
    policies = {"default_queue_policy": dynamic.default_queue_policy} | {
        f"priority_queue_policy[{level}]": dynamic.priority_queue_policy[level]
        for level in sorted(dynamic.priority_queue_policy)
    }
    for path, policy in policies.items():
        if policy.default_timeout_microseconds and policy.timeout_action == ModelQueuePolicy.DELAY:
            yield ContractError(
                f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {config.name}",
                field=f"dynamic_batching.{path}.timeout_action",
            )


def _preferred_problems(sizes: Iterable[int], config: ModelConfig, path: str, subject: str) -> Iterator[ContractError]:
    for index, size in enumerate(sizes):
        field = f"{path}.preferred_batch_size[{index}]"
        if size <= 0:
            yield ContractError(f"{subject} must be positive for {config.name}", field=field)
        elif size > config.max_batch_size:
            yield ContractError(f"{subject} must be <= max batch size for {config.name}", field=field)


def sequence_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield the broken rules of ``sequence_batching``."""
    sequence, name = config.sequence_batching, config.name
    yield from _control_input_problems(config)
    for kind in (_Control.CONTROL_SEQUENCE_START, _Control.CONTROL_SEQUENCE_END, _Control.CONTROL_SEQUENCE_READY):
        yield from _control_problems(config, kind)
    yield from _control_problems(config, _Control.CONTROL_SEQUENCE_CORRID)
    if sequence.HasField("oldest"):
        yield from _preferred_problems(
            sequence.oldest.preferred_batch_size,
            config,
            "sequence_batching.oldest",
            "sequence batching preferred batch size",
        )
    if sequence.HasField("direct") and not 0.0 <= sequence.direct.minimum_slot_utilization <= 1.0:
        yield ContractError(
            f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {name}",
            field="sequence_batching.direct.minimum_slot_utilization",
        )


def _control_input_problems(config: ModelConfig) -> Iterator[ContractError]:
    seen: set[str] = set()
    for index, control_input in enumerate(config.sequence_batching.control_input):
        field = f"sequence_batching.control_input[{index}].name"
        tensor = control_input.name
        if not tensor:
            yield ContractError(f"sequence batching control tensor must have a name for {config.name}", field=field)
        elif tensor in seen:
            yield ContractError(
                f"sequence batching control tensor '{tensor}' is specified for multiple control kinds for "
                f"{config.name}",
                field=field,
            )
        seen.add(tensor)


def _control_problems(config: ModelConfig, kind: _Control.Kind.ValueType) -> Iterator[ContractError]:
    """Yield the broken rules of all controls of one kind."""
    kind_name, count = _Control.Kind.Name(kind), 0
    for i, control_input in enumerate(config.sequence_batching.control_input):
        for j, control in enumerate(control_input.control):
            if control.kind != kind:
                continue
            count += 1
            field = f"sequence_batching.control_input[{i}].control[{j}]"
            if count > 1:
                yield ContractError(
                    f"sequence batching specifies multiple {kind_name} tensors for {config.name}", field=field
                )
            elif kind == _Control.CONTROL_SEQUENCE_CORRID:
                yield from _correlation_problems(control, config.name, field)
            else:
                yield from _flag_problems(control, f"{kind_name} for {config.name}", field)


def _flag_problems(control: _Control, where: str, field: str) -> Iterator[ContractError]:
    given = [pair for pair in _PAIRS if getattr(control, pair)]
    if not given:
        yield ContractError(
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
            f"{where}",
            field=field,
        )
    elif len(given) > 1:
        yield ContractError(
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            f"'bool_false_true' for {where}",
            field=field,
        )
    elif len(getattr(control, given[0])) != 2:
        yield ContractError(
            f"sequence batching control '{given[0]}' must have exactly 2 entries for {where}",
            field=f"{field}.{given[0]}",
        )


def _correlation_problems(control: _Control, model: str, field: str) -> Iterator[ContractError]:
    if any(getattr(control, pair) for pair in _PAIRS):
        yield ContractError(
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
            f"CONTROL_SEQUENCE_CORRID for {model}",
            field=field,
        )
    if control.data_type not in _CORRELATION_TYPES:
        yield ContractError(
            f"unexpected data type for control CONTROL_SEQUENCE_CORRID for {model}. Allowed data types are "
            "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
            field=f"{field}.data_type",
        )
