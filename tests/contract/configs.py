"""Configs to test with: one as people write it, and a strategy for any."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from serving_node.contract.proto.model_config_pb2 import ModelConfig

_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)

FULL = """
# what people write
name: "resnet" backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x", data_type: TYPE_FP32, format: FORMAT_NCHW, dims: [ 3, 224, 224 ] } ]
output { name: "y" data_type: TYPE_FP32 dims: 1000 label_filename: "labels.txt" reshape { shape: [ 1000 ] } }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  default_queue_policy { timeout_action: DELAY max_queue_size: 5 }
  priority_queue_policy { key: 1 value { default_timeout_microseconds: 9007199254740993 } }
}
instance_group [ { count: 2 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value { string_value: "0" } }
version_policy: { specific: { versions: [ 1, 3 ] } }
model_warmup { name: "w" batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } }
"""
"""A config as people write it."""


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values that one scalar field can hold."""
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type in _RANGES:
        low, high = _RANGES[field.cpp_type]
        return st.integers(low, high) | st.integers(0, 9)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return st.floats(allow_nan=False, allow_infinity=False, width=32)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return st.floats(allow_nan=False, allow_infinity=False)
    return _TEXT


@st.composite
def messages(draw: st.DrawFn, message: Message) -> Message:
    """Fill ``message`` with some of its fields and return it."""
    descriptor: Any = message.DESCRIPTOR
    taken: set[str] = set()
    for field in (
        draw(st.lists(st.sampled_from(list(descriptor.fields)), max_size=4, unique=True)) if descriptor.fields else []
    ):
        slot = field.containing_oneof.name if field.containing_oneof else field.name
        if slot in taken:
            continue
        taken.add(slot)
        _fill(draw, message, field)
    return message


def _fill(draw: st.DrawFn, message: Message, field: FieldDescriptor) -> None:
    entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
    target = getattr(message, field.name)
    if entry is not None:
        value = entry.fields_by_name["value"]
        for key in draw(st.lists(scalars(entry.fields_by_name["key"]), max_size=2, unique=True)):
            if value.message_type is not None:
                draw(messages(target[key]))
            else:
                target[key] = draw(scalars(value))
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 2))):
            if field.message_type is not None:
                draw(messages(target.add()))
            else:
                target.append(draw(scalars(field)))
    elif field.message_type is not None:
        target.SetInParent()
        draw(messages(target))
    else:
        setattr(message, field.name, draw(scalars(field)))


def model_configs() -> st.SearchStrategy[Any]:
    """Any ModelConfig that the contract can carry, sensible or not."""
    return st.builds(ModelConfig).flatmap(messages)
