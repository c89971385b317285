"""What is reported of an output: type, shape, a few figures, and how it differs from what was wanted."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Facts = dict[str, Any]
Raw = tuple[str, str, list[int], bytes]
"""Name, data type, shape and elements of an output, as on the wire."""

_KINDS = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8"}
_KINDS |= {"UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "BOOL": "u1"}
_LONGEST_TEXT = 80


def facts_of(outputs: list[Raw], wanted: list[dict[str, Any]]) -> list[Facts]:
    """Return the facts of each output; with ``difference`` where a value of it is wanted."""
    by_name = {one["name"]: one for one in wanted}
    found = []
    for name, datatype, shape, data in outputs:
        facts = {"name": name, "datatype": datatype, "shape": shape, **_figures(values_of(datatype, data))}
        if name in by_name:
            facts["difference"] = _difference(by_name[name], datatype, shape, data)
        found.append(facts)
    return found


def wanted_in(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the outputs that a request should be answered with: JSON with sizes, then their elements."""
    if not request.get("expected"):
        return []
    with Path(request["expected"]).open("rb") as file:
        outputs: list[dict[str, Any]] = json.loads(file.readline())
        return [{**one, "data": file.read(one["size"])} for one in outputs]


def values_of(datatype: str, data: bytes) -> Any:
    """Return the elements as an array, None for texts."""
    if datatype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, _KINDS[datatype]) if datatype in _KINDS else None


def _figures(values: Any) -> Facts:
    if values is None:
        return {"nan": 0, "inf": 0, "least": None, "most": None}
    if values.dtype.kind != "f":
        ends = (float(values.min()), float(values.max())) if values.size else (None, None)
        return {"nan": 0, "inf": 0, "least": ends[0], "most": ends[1]}
    finite = values[np.isfinite(values)]
    ends = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    return {"nan": nan, "inf": inf, "least": ends[0], "most": ends[1]}


def _difference(wanted: dict[str, Any], datatype: str, shape: list[int], data: bytes) -> Facts:
    """Return how many of the elements are too far off, the largest distance, and the first that is.

    An element is near enough when it is off by at most ``absolute + relative * |wanted|``, as ``numpy.isclose`` has it.
    """
    blank: Facts = {"elements": 0, "wrong": 0, "largest": None, "index": None, "got": "", "wanted": ""}
    if (wanted["datatype"], wanted["shape"]) != (datatype, shape):
        words = {"got": f"{datatype} {shape}", "wanted": f"{wanted['datatype']} {wanted['shape']}"}
        return {**blank, "elements": 1, "wrong": 1, **words}
    ours, theirs = values_of(datatype, data), values_of(datatype, wanted["data"])
    if ours is None:
        return _texts_apart(blank, [*_texts(data)], [*_texts(wanted["data"])])
    if ours.dtype.kind == "f":
        # in double precision: two halves may be further apart than a half can say
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        near = np.isclose(ours, theirs, rtol=wanted["relative"], atol=wanted["absolute"], equal_nan=True)
    elif wanted["absolute"] or wanted["relative"]:
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        near = np.isclose(ours, theirs, rtol=wanted["relative"], atol=wanted["absolute"])
    else:
        near = ours == theirs
    with np.errstate(all="ignore"):
        apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    apart = apart[np.isfinite(apart)]
    found = {**blank, "elements": int(near.size), "wrong": int(near.size - near.sum())}
    found["largest"] = float(apart.max()) if apart.size else None
    if found["wrong"]:
        first = int(np.argmin(near))
        found |= {"index": first, "got": str(ours[first]), "wanted": str(theirs[first])}
    return found


def _texts(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, place)
        yield data[place + 4 : place + 4 + size]
        place += 4 + size


def _texts_apart(blank: Facts, ours: list[bytes], theirs: list[bytes]) -> Facts:
    wrong = [place for place, (got, wanted) in enumerate(zip(ours, theirs, strict=False)) if got != wanted]
    missing = abs(len(ours) - len(theirs))
    found = {**blank, "elements": max(len(ours), len(theirs)), "wrong": len(wrong) + missing}
    if wrong:
        first = wrong[0]
        found |= {"index": first, "got": _shown(ours[first]), "wanted": _shown(theirs[first])}
    return found


def _shown(text: bytes) -> str:
    return text[:_LONGEST_TEXT].decode(errors="replace")
