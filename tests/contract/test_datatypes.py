"""Data types between the enum and the wire."""

from __future__ import annotations

import pytest

from serving_node.contract.datatypes import WIRE_NAMES, byte_size, data_type, wire_name
from serving_node.contract.errors import ContractError
from serving_node.contract.proto.model_config_pb2 import DataType


def test_every_type_has_its_wire_name_and_back() -> None:
    for name, number in DataType.items():
        if number == DataType.TYPE_INVALID:
            continue
        wire = "BYTES" if name == "TYPE_STRING" else name.removeprefix("TYPE_")
        assert wire_name(number) == wire
        assert data_type(wire) == number
    assert len(WIRE_NAMES) == len(DataType.keys()) - 1


@pytest.mark.parametrize(
    ("wire", "size"),
    [("BOOL", 1), ("INT8", 1), ("UINT16", 2), ("FP16", 2), ("BF16", 2), ("FP32", 4), ("FP64", 8), ("BYTES", None)],
)
def test_size_of_an_element(wire: str, size: int | None) -> None:
    assert byte_size(wire) == size


@pytest.mark.parametrize("number", [0, -1, 15])
def test_a_number_without_a_type_is_refused(number: int) -> None:
    with pytest.raises(ContractError, match=f"{number} is not the number of a data type"):
        wire_name(number)


@pytest.mark.parametrize("wire", ["STRING", "TYPE_FP32", "fp32", "INVALID", ""])
def test_a_name_that_is_not_on_the_wire_is_refused(wire: str) -> None:
    with pytest.raises(ContractError, match="is not a data type, expected one of BOOL, UINT8"):
        data_type(wire)
    with pytest.raises(ContractError):
        byte_size(wire)
