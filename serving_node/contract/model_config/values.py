"""What protobuf lets through but a config must not hold, and help for misspelt names."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from serving_node.contract.errors import ContractError
from serving_node.contract.proto import model_config_pb2

_LONGEST_GUESS = 64  # comparing is quadratic, and longer names are no slips of the pen
_FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


def map_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Return the key field and the value field of a map; None when the field is no map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def check_values(message: Message, path: str = "") -> None:
    """Refuse enum numbers without a name and numbers that are not finite, anywhere in ``message``.

    Protobuf's enums are open and its floats may be NaN: neither survives the way through all forms of a config.

    Raises:
        ContractError: the first such value; ``field`` is its path.
    """
    for field, value in message.ListFields():
        for place, item in _items(field, value, f"{path}.{field.name}" if path else field.name):
            if isinstance(item, Message):
                check_values(item, place)
            elif field.enum_type is not None and item not in field.enum_type.values_by_number:
                raise ContractError(f"{place}: {item} is not a value of {field.enum_type.name}", field=place)
            elif field.cpp_type in _FLOATS and not math.isfinite(item):
                raise ContractError(f"{place} must be a finite number", field=place)


def _items(field: FieldDescriptor, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each single value of a set field with its path."""
    if map_fields(field):
        yield from ((f"{path}[{key}]", value[key]) for key in value)
    elif field.is_repeated:
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
    else:
        yield path, value


def suggestion(message_name: str, field_name: str) -> str:
    """Return ``", did you mean 'x'?"`` when a field of the message is spelt much like ``field_name``, else ``""``."""
    names = _field_names(message_name) if len(field_name) <= _LONGEST_GUESS else []
    close = difflib.get_close_matches(field_name, names, n=1)
    return f", did you mean '{close[0]}'?" if close else ""


def _field_names(message_name: str) -> list[str]:
    first, *rest = message_name.split(".")
    descriptor: Descriptor = model_config_pb2.DESCRIPTOR.message_types_by_name[first]
    for name in rest:
        descriptor = descriptor.nested_types_by_name[name]
    return [field.name for field in descriptor.fields]
