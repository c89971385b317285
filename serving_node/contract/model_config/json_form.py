"""ModelConfig as JSON: proto field names, enum names, 64-bit integers as numbers (as Triton's ``GET .../config``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import rfc8785
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import lenient_json
from serving_node.contract.model_config.values import check_values, map_fields, suggestion
from serving_node.contract.proto.model_config_pb2 import ModelConfig

_INTEGERS = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
)
_FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
# 64-bit integers that Triton leaves as protobuf writes them in JSON, as strings.
_LEFT_AS_TEXT = frozenset(
    {
        "inference.ModelInstanceGroup.SecondaryDevice.device_id",
        "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
        "inference.ModelSequenceBatching.InitialState.dims",
    }
)
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_SAFE_INTEGER = 2**53 - 1


def parse_json(document: str | dict[str, Any]) -> ModelConfig:
    """Return the config that a JSON text or a parsed JSON object describes.

    Lenient where Triton is (see ``lenient_json``; enum names in any case; integers as strings; camelCase names; one
    value for a list of one; null is absent) and strict on unknown fields.

    Raises:
        ContractError: syntax, an unknown field or a value of the wrong type; ``field`` is its path.
    """
    value = lenient_json.loads(document) if isinstance(document, str) else document
    config = ModelConfig()
    _fill(config, value, "")
    check_values(config)
    return config


def to_json(config: ModelConfig, *, defaults: bool = True) -> dict[str, Any]:
    """Return JSON-ready dicts and lists; ``parse_json`` of it gives an equal message.

    With ``defaults`` every field without presence is there even when it has its default value, lists and maps included,
    in the order of the proto file: Triton's answer to ``GET .../config``. Without, only what is set.
    """
    document = json_format.MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=defaults
    )
    return _numbers(ModelConfig.DESCRIPTOR, document, _LEFT_AS_TEXT if defaults else frozenset())


def canonical_json(config: ModelConfig) -> bytes:
    """Return the one JSON text that equal configs share: RFC 8785, defaults left out.

    Integers beyond 2^53 - 1 are decimal strings there, because RFC 8785 knows only what a double can hold.
    """
    return rfc8785.dumps(_strings_for_large(to_json(config, defaults=False)))


def _numbers(descriptor: Descriptor, document: dict[str, Any], left: frozenset[str]) -> dict[str, Any]:
    """Return protobuf's own JSON with integers as numbers, but for those ``left``, fields in the file's order and
    maps sorted.
    """
    return {
        field.name: document[field.name] if field.full_name in left else _number(field, document[field.name], left)
        for field in descriptor.fields
        if field.name in document
    }


def _number(field: FieldDescriptor, value: Any, left: frozenset[str]) -> Any:
    if entry := map_fields(field):
        return {key: _number(entry[1], value[key], left) for key in sorted(value)}
    if isinstance(value, list):
        return [_number(field, item, left) for item in value]
    if field.message_type is not None:
        return _numbers(field.message_type, value, left)
    if field.cpp_type in _INTEGERS:
        return int(value)
    # protobuf writes infinities as words
    is_whole = field.cpp_type in _FLOATS and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and abs(value) <= _SAFE_INTEGER else value


def _strings_for_large(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strings_for_large(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strings_for_large(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _SAFE_INTEGER:
        return str(value)
    return value


def _fill(message: Message, document: Any, path: str) -> None:
    if not isinstance(document, dict):
        raise ContractError(f"{path or 'the config'} must be an object", field=path)
    descriptor = message.DESCRIPTOR
    fields: dict[str, Any] = {name: field for field in descriptor.fields for name in (field.json_name, field.name)}
    seen: dict[str, str] = {}
    for key, value in document.items():
        place = f"{path}.{key}" if path else str(key)
        field = fields.get(key)
        if field is None:
            name = descriptor.full_name.removeprefix("inference.")
            hint = suggestion(name, str(key))
            raise ContractError(f"unknown field '{place}': {name} has no field '{key}'{hint}", field=place)
        if value is None:
            continue
        slot = field.containing_oneof.name if field.containing_oneof else field.name
        if slot in seen:
            raise ContractError(f"'{place}' and '{seen[slot]}' exclude each other", field=place)
        seen[slot] = place
        _set(message, field, value, place)


def _set(message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
    if entry := map_fields(field):
        _set_map(getattr(message, field.name), entry, value, path)
    elif field.is_repeated:
        if not isinstance(value, list | tuple):
            if isinstance(value, dict):
                raise ContractError(f"{path} must be a list", field=path)
            value = [value]
        target = getattr(message, field.name)
        for index, item in enumerate(value):
            place = f"{path}[{index}]"
            if field.message_type is not None:
                _fill(target.add(), item, place)
            else:
                _guard(target.append, _scalar(field, item, place), place)
    elif field.message_type is not None:
        target = getattr(message, field.name)
        target.SetInParent()
        _fill(target, value, path)
    else:
        _guard(partial(setattr, message, field.name), _scalar(field, value, path), path)


def _set_map(target: Any, entry: tuple[FieldDescriptor, FieldDescriptor], value: Any, path: str) -> None:
    if not isinstance(value, dict):
        raise ContractError(f"{path} must be an object", field=path)
    key_field, value_field = entry
    for key, item in value.items():
        place = f"{path}[{key}]"
        name = _scalar(key_field, key, place)
        if value_field.message_type is not None:
            _fill(_guard(target.__getitem__, name, place), item, place)
        else:
            _guard(partial(target.__setitem__, name), _scalar(value_field, item, place), place)


def _guard(assign: Callable[[Any], Any], value: Any, path: str) -> Any:
    """Return ``assign(value)``, with protobuf's complaint about the range or the text turned into ours."""
    try:
        return assign(value)
    except (ValueError, TypeError) as error:
        raise ContractError(f"{path}: {error}", field=path) from None


def _scalar(field: FieldDescriptor, value: Any, path: str) -> Any:
    """Return ``value`` as the field's Python type."""
    if field.enum_type is not None:
        return _enum(field.enum_type, value, path)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if value in ("true", "false"):
            return value == "true"
        expected, ok = "true or false", isinstance(value, bool)
    elif field.cpp_type in _INTEGERS:
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        expected, ok = "an integer", isinstance(value, int) and not isinstance(value, bool)
    elif field.cpp_type in _FLOATS:
        expected, ok = "a number", isinstance(value, int | float) and not isinstance(value, bool)
    else:
        expected, ok = "a string", isinstance(value, str)
    if not ok:
        raise ContractError(f"{path} must be {expected}", field=path)
    return value


def _enum(enum: EnumDescriptor, value: Any, path: str) -> int:
    if isinstance(value, str):
        known = enum.values_by_name.get(value.upper())
    elif isinstance(value, int) and not isinstance(value, bool):
        known = enum.values_by_number.get(value)
    else:
        known = None
    if known is None:
        names = ", ".join(item.name for item in enum.values)
        raise ContractError(f"{path}: {value!r} is not one of {names}", field=path)
    return int(known.number)
