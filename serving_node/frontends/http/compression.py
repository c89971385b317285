"""Content codings of requests and answers: gzip and deflate."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.wire.exchange import Buffer

# zlib's window argument: "deflate" in HTTP is the zlib format, gzip has a header of its own
_WINDOW = {b"gzip": 31, b"deflate": 15}
# Some clients confuse the two: for reading, the first bytes say which it is, as in Triton.
_EITHER_WINDOW = 47
# Less than this does not get smaller.
MIN_COMPRESSED_BYTES = 256


def is_supported(encoding: bytes) -> bool:
    """Return whether a request body with this Content-Encoding can be read."""
    return encoding in _WINDOW


def decompress(data: Buffer, limit: int) -> bytes:
    """Return the content of a body in either coding.

    Raises:
        InferenceError: INVALID_ARG, damaged or larger than ``limit`` bytes.
    """
    if not len(data):
        raise InferenceError(ErrorCode.INVALID_ARG, "nothing to be decompressed")
    engine = zlib.decompressobj(_EITHER_WINDOW)
    try:
        content = engine.decompress(data, limit + 1)
    except zlib.error as error:
        raise InferenceError(ErrorCode.INVALID_ARG, f"failed to decompress the request body: {error}") from error
    if len(content) > limit:
        sentence = (
            f"Decompressed data size exceeds the maximum allowed value of {limit} bytes."
            " Use --http-max-input-size to increase the limit."
        )
        raise InferenceError(ErrorCode.INVALID_ARG, sentence)
    if not engine.eof:
        raise InferenceError(ErrorCode.INVALID_ARG, "failed to decompress the request body: it is incomplete")
    return content


def compress(encoding: bytes, parts: Sequence[Buffer]) -> bytes:
    """Return the compressed concatenation of ``parts``."""
    engine = zlib.compressobj(wbits=_WINDOW[encoding], level=1)  # tensors: more effort gains little
    return b"".join([*(engine.compress(part) for part in parts), engine.flush()])


def choose_encoding(accept: bytes) -> bytes:
    """Return b"gzip", b"deflate" or b"" (identity): of the highest weight in an Accept-Encoding header the first.

    As in Triton only these names count; ``*`` does not.
    """
    best, best_weight = b"", 0.0
    for item in accept.split(b","):
        name, _, arguments = item.strip().partition(b";")
        name = name.strip().lower()
        weight = 1.0
        key, _, value = arguments.strip().partition(b"=")
        if key.strip() == b"q":
            try:
                weight = float(value)
            except ValueError:
                continue
        if weight > best_weight and (name in _WINDOW or name == b"identity"):
            best, best_weight = name, weight
    return b"" if best == b"identity" else best
