"""The rows of Triton's trace file. Pure.

A trace is a number of JSON objects with the same ``id``: one that names the model, one for each timestamp, one for each
tensor. Source: Triton's tracer, with two changes: text is escaped, and elements of 8 and 16 bits are numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving_node.core.tensor import NUMPY_DTYPES, Tensor, decode_bytes_elements


@dataclass(frozen=True, slots=True)
class BeginRow:
    """Which model and version took the request. ``parent_id``: the trace of the request that it was made for, or 0."""

    model: str
    version: str
    request_id: str
    parent_id: int = 0


@dataclass(frozen=True, slots=True)
class TimeRow:
    """When something happened, in monotonic nanoseconds."""

    activity: str
    ns: int


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor on its way. ``tensor`` has memory of its own."""

    activity: str
    tensor: Tensor


Row = BeginRow | TimeRow | TensorRow


def render_rows(trace_id: int, rows: Sequence[Row]) -> bytes:
    """Return the rows of one trace as JSON objects with commas between them."""
    return b",".join(_render(trace_id, row) for row in rows)


def _render(trace_id: int, row: Row) -> bytes:
    if isinstance(row, TimeRow):
        return b'{"id":%d,"timestamps":[{"name":"%s","ns":%d}]}' % (trace_id, row.activity.encode(), row.ns)
    if isinstance(row, BeginRow):
        described: dict[str, object] = {"id": trace_id, "model_name": row.model, "model_version": int(row.version)}
        if row.request_id:
            described["request_id"] = row.request_id
        if row.parent_id:
            described["parent_id"] = row.parent_id
        return _json(described)
    tensor = row.tensor
    shown = {
        "name": tensor.name,
        "data": tensor_text(tensor),
        "shape": ",".join(map(str, tensor.shape)),
        "dtype": tensor.datatype,
    }
    return _json({"id": trace_id, "activity": row.activity, "tensor": shown})


def tensor_text(tensor: Tensor) -> str:
    """Return the elements with commas between them: strings in quotes, BOOL as 1 and 0, at most 6 digits of a float."""
    if not tensor.data:
        return ""
    if tensor.datatype == "BYTES":
        elements = decode_bytes_elements(tensor.data, tensor.name, int(np.prod(tensor.shape)))
        return ",".join('"' + element.decode("utf-8", "replace") + '"' for element in elements)
    array = np.frombuffer(tensor.data, dtype=NUMPY_DTYPES[tensor.datatype])
    if tensor.datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if array.dtype.kind == "f":
        return ",".join(map("{:g}".format, array.tolist()))
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    return ",".join(map(str, array.tolist()))


def _json(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
