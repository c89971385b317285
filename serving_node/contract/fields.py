"""The form catalogue: every field of ModelConfig with what a form needs to ask for it.

The fields come from the descriptor, so that none can be forgotten; texts and limits come from tables beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from serving_node.contract.datatypes import wire_name
from serving_node.contract.field_texts import CHOICE_TEXTS, FIELD_TEXTS
from serving_node.contract.model_config.normalisation import SEQUENCE_IDLE_MICROSECONDS
from serving_node.contract.model_config.values import map_fields
from serving_node.contract.proto.model_config_pb2 import ModelConfig


class Group(StrEnum):
    """Part of the form that a field belongs to, in the order of the form."""

    MODEL = "Model"
    TENSORS = "Inputs/outputs"
    BATCHING = "Batching"
    INSTANCES = "Instances"
    SEQUENCES = "Sequences"
    CACHE = "Cache"
    WARM_UP = "Warm-up"
    LIMITS = "Limits"
    ADVANCED = "Advanced"


class Kind(StrEnum):
    """What a single value of a field is."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    SWITCH = "switch"
    CHOICE = "choice"
    SECTION = "section"


class Shape(StrEnum):
    """How many values a field holds: one, a list, or a map from a key (text or integer) to a value."""

    SINGLE = "single"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a choice, as in JSON, and its label."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of the form.

    ``path`` joins the field names with dots; a list is followed by ``[]`` and a map by ``{}`` where something lies
    below it: ``input[].dims``, ``parameters{}.string_value``. ``default`` is what counts when the field is left out
    (None for sections, lists and maps). ``alternatives`` names the group of fields of which only one may be set.
    ``unit`` is of the number. Limits include both ends.
    """

    path: str
    name: str
    group: Group
    kind: Kind
    shape: Shape
    label: str
    help: str
    default: str | int | float | bool | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    unit: str = ""
    choices: tuple[Choice, ...] = ()
    alternatives: str = ""
    key_kind: Kind | None = None


_KINDS = {
    FieldDescriptor.CPPTYPE_BOOL: Kind.SWITCH,
    FieldDescriptor.CPPTYPE_STRING: Kind.TEXT,
    FieldDescriptor.CPPTYPE_ENUM: Kind.CHOICE,
    FieldDescriptor.CPPTYPE_MESSAGE: Kind.SECTION,
    FieldDescriptor.CPPTYPE_FLOAT: Kind.NUMBER,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind.NUMBER,
}
_TYPE_LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
# Longest matching start of a path decides.
_GROUPS = {
    "name": Group.MODEL,
    "platform": Group.MODEL,
    "backend": Group.MODEL,
    "version_policy": Group.MODEL,
    "default_model_filename": Group.MODEL,
    "model_transaction_policy": Group.MODEL,
    "input": Group.TENSORS,
    "output": Group.TENSORS,
    "max_batch_size": Group.BATCHING,
    "dynamic_batching": Group.BATCHING,
    "dynamic_batching.default_queue_policy": Group.LIMITS,
    "dynamic_batching.priority_queue_policy": Group.LIMITS,
    "instance_group": Group.INSTANCES,
    "instance_group[].rate_limiter": Group.LIMITS,
    "sequence_batching": Group.SEQUENCES,
    "response_cache": Group.CACHE,
    "model_warmup": Group.WARM_UP,
    "ensemble_scheduling.max_inflight_requests": Group.LIMITS,
}
# Narrower than the type, because other values are refused or mean nothing. By message and field.
_MINIMUMS: dict[str, int] = {
    "ModelConfig.max_batch_size": 0,
    "ModelInput.dims": -1,
    "ModelOutput.dims": -1,
    "ModelTensorReshape.shape": -1,
    "ModelVersionPolicy.Latest.num_versions": 1,
    "ModelVersionPolicy.Specific.versions": 1,
    "ModelInstanceGroup.count": 1,
    "ModelInstanceGroup.gpus": 0,
    "ModelInstanceGroup.SecondaryDevice.device_id": 0,
    "ModelDynamicBatching.preferred_batch_size": 1,
    "ModelSequenceBatching.State.dims": -1,
    "ModelSequenceBatching.InitialState.dims": -1,
    "ModelSequenceBatching.StrategyDirect.minimum_slot_utilization": 0,
    "ModelSequenceBatching.StrategyOldest.max_candidate_sequences": 0,
    "ModelSequenceBatching.StrategyOldest.preferred_batch_size": 1,
    "ModelEnsembling.Step.model_version": -1,
    "ModelWarmup.Input.dims": 1,
    "ModelOptimizationPolicy.Graph.level": -1,
    "ModelOptimizationPolicy.Cuda.GraphSpec.batch_size": 0,
    "ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim": 1,
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.batch_size": 0,
}
_MAXIMUMS: dict[str, int] = {"ModelSequenceBatching.StrategyDirect.minimum_slot_utilization": 1}
# What normalisation writes where the proto file's default says something else.
_DEFAULTS: dict[str, Any] = {
    "ModelVersionPolicy.Latest.num_versions": 1,
    "ModelInstanceGroup.count": 1,
    "ModelSequenceBatching.max_sequence_idle_microseconds": SEQUENCE_IDLE_MICROSECONDS,
}


def _walk(descriptor: Any, prefix: str) -> Iterator[FieldSpec]:
    for field in descriptor.fields:
        path = f"{prefix}{field.name}"
        entry = map_fields(field)
        value = entry[1] if entry else field
        yield _spec(field, value, entry, path)
        if value.message_type is not None:
            below = "{}" if entry else "[]" if field.is_repeated else ""
            yield from _walk(value.message_type, f"{path}{below}.")


def _spec(
    field: FieldDescriptor, value: FieldDescriptor, entry: tuple[FieldDescriptor, FieldDescriptor] | None, path: str
) -> FieldSpec:
    key = field.full_name.removeprefix("inference.")
    label, text = FIELD_TEXTS[key]
    kind = _KINDS.get(value.cpp_type, Kind.INTEGER)
    shape = Shape.MAP if entry else Shape.LIST if field.is_repeated else Shape.SINGLE
    low, high = _TYPE_LIMITS.get(value.cpp_type, (None, None))
    return FieldSpec(
        path=path,
        name=field.name,
        group=_group(path),
        kind=kind,
        shape=shape,
        label=label,
        help=text,
        default=_default(field, key) if shape is Shape.SINGLE and kind is not Kind.SECTION else None,
        minimum=_MINIMUMS.get(key, low),
        maximum=_MAXIMUMS.get(key, high),
        unit="microseconds" if field.name.endswith("_microseconds") else "",
        choices=_choices(value.enum_type) if value.enum_type is not None else (),
        alternatives=field.containing_oneof.name if field.containing_oneof else "",
        key_kind=_KINDS.get(entry[0].cpp_type, Kind.INTEGER) if entry else None,
    )


def _group(path: str) -> Group:
    fitting = [start for start in _GROUPS if path == start or path.startswith((f"{start}.", f"{start}[", f"{start}{{"))]
    return _GROUPS[max(fitting, key=len)] if fitting else Group.ADVANCED


def _default(field: FieldDescriptor, key: str) -> Any:
    if key in _DEFAULTS:
        return _DEFAULTS[key]
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    return field.default_value


def _choices(enum: EnumDescriptor) -> tuple[Choice, ...]:
    names = [(value.name, value.number) for value in enum.values]
    return tuple(Choice(name, CHOICE_TEXTS.get(name) or wire_name(number)) for name, number in names)


FIELDS: tuple[FieldSpec, ...] = tuple(_walk(ModelConfig.DESCRIPTOR, ""))
"""Every field, parents before what lies below them, in the order of the proto file."""

FIELDS_BY_PATH: dict[str, FieldSpec] = {spec.path: spec for spec in FIELDS}
