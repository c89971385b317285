"""Element types: between ModelConfig's ``DataType`` numbers and the names on the wire.

The wire name is the enum name without ``TYPE_``, except that TYPE_STRING travels as ``BYTES``.
Source: open inference protocol (KServe v2), Triton's model_config.proto.
"""

from __future__ import annotations

from serving_node.contract.errors import ContractError
from serving_node.contract.proto import model_config_pb2

_SIZES: dict[str, int | None] = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": None,
    "BF16": 2,
}

WIRE_NAMES = tuple(_SIZES)
"""All wire names, in the order of the enum."""

_NUMBERS = {name: number for number, name in enumerate(WIRE_NAMES, start=1)}


def wire_name(data_type: int) -> str:
    """Return the wire name of a ``DataType`` number: ``TYPE_STRING`` -> ``"BYTES"``.

    Raises:
        ContractError: TYPE_INVALID or an unknown number.
    """
    if not 1 <= data_type <= len(WIRE_NAMES):
        raise ContractError(f"{data_type} is not the number of a data type")
    return WIRE_NAMES[data_type - 1]


def data_type(wire: str) -> model_config_pb2.DataType.ValueType:
    """Return the ``DataType`` number of a wire name.

    Raises:
        ContractError: no such wire name.
    """
    number = _NUMBERS.get(wire)
    if number is None:
        raise ContractError(f"'{wire}' is not a data type, expected one of {', '.join(WIRE_NAMES)}")
    return model_config_pb2.DataType.ValueType(number)


def byte_size(wire: str) -> int | None:
    """Return the bytes of one element; None for BYTES, whose elements have no fixed size.

    Raises:
        ContractError: no such wire name.
    """
    data_type(wire)
    return _SIZES[wire]
