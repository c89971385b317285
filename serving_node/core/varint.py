"""Protobuf's variable-length integers."""

from __future__ import annotations


def encode_varint(number: int) -> bytes:
    """Return a non-negative integer in groups of seven bits, lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
