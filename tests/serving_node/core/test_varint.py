from __future__ import annotations

import pytest
from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]

from serving_node.core.varint import encode_varint


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16383, 16384, 2**32, 2**63 - 1])
def test_is_what_protobuf_writes(number: int) -> None:
    assert encode_varint(number) == _VarintBytes(number)
