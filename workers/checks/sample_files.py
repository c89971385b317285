"""Samples among the files of a version: the folder ``samples``, and ``sample_inputs.json``.

Files with the same stem make one sample: ``NAME.json`` (a request, or a sample with what is expected), ``NAME.npz`` or
``NAME/INPUT.npy`` for the inputs; ``NAME.expected.json`` (a response), ``NAME.expected.npz`` or
``NAME/expected/OUTPUT.npy`` for the outputs; ``NAME.tolerance.json``. Nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from django.utils.translation import gettext as _

from registry.domain.sample_inputs import (
    MAX_DOCUMENT_BYTES,
    MAX_SAMPLE_BYTES,
    MAX_SAMPLES,
    Expected,
    Sample,
    Tensor,
    expected_of,
    read_sample,
    read_samples,
    require_small,
)
from registry.errors import ValidationFailed
from registry.models import ModelVersion, VersionFile
from registry.storage import artifact_store
from workers.checks.verdicts import CheckFailed

SAMPLES_FILE = "sample_inputs.json"
SAMPLES_FOLDER = "samples/"
_KINDS = {"f2": "FP16", "f4": "FP32", "f8": "FP64", "i1": "INT8", "i2": "INT16", "i4": "INT32", "i8": "INT64"}
_KINDS |= {"u1": "UINT8", "u2": "UINT16", "u4": "UINT32", "u8": "UINT64", "b1": "BOOL"}
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_MAX_ARRAYS = 256


def samples_among(version: ModelVersion) -> tuple[Sample, ...]:
    """Return the samples in the files of a version; those of the folder where it has one.

    Raises:
        CheckFailed: they cannot be read.
        StorageFailed: the store did not give them.
    """
    files = {file.path: file for file in version.files.select_related("blob")}
    inside = {
        path.removeprefix(SAMPLES_FOLDER): file for path, file in files.items() if path.startswith(SAMPLES_FOLDER)
    }
    groups = _grouped(inside)
    if len(groups) > MAX_SAMPLES:
        words = {"count": len(groups), "most": MAX_SAMPLES}
        raise CheckFailed(_("The folder samples has %(count)d samples; at most %(most)d are tried.") % words)
    try:
        if groups:
            return tuple(_sample(name, groups[name]) for name in sorted(groups))
        return _listed(files[SAMPLES_FILE]) if SAMPLES_FILE in files else ()
    except ValidationFailed as error:
        raise CheckFailed(error.message) from error


def _listed(file: VersionFile) -> tuple[Sample, ...]:
    document = _json(file)
    samples = document if isinstance(document, list) else [document]
    if not 1 <= len(samples) <= MAX_SAMPLES or not all(_is_request(sample) for sample in samples):
        text = _("%(name)s must hold 1 to %(most)d requests with a list “inputs” each.")
        raise CheckFailed(text % {"name": SAMPLES_FILE, "most": MAX_SAMPLES})
    return read_samples(samples)


def _is_request(sample: Any) -> bool:
    return isinstance(sample, dict) and isinstance(sample.get("inputs"), list) and bool(sample["inputs"])


def _grouped(files: Mapping[str, VersionFile]) -> dict[str, dict[str, VersionFile]]:
    """Return the files of each sample, by what they are to it: ``.json``, ``.expected.npz``, ``expected/y.npy``..."""
    found: dict[str, dict[str, VersionFile]] = {}
    for path, file in files.items():
        head, slash, rest = path.partition("/")
        if slash and rest.endswith(".npy"):
            found.setdefault(head, {})[rest] = file
        for ending in () if slash else (".expected.json", ".expected.npz", ".tolerance.json", ".json", ".npz"):
            if path.endswith(ending) and path != ending:
                found.setdefault(path.removesuffix(ending), {})[ending] = file
                break
    return found


def _sample(name: str, files: Mapping[str, VersionFile]) -> Sample:
    where = f"{SAMPLES_FOLDER}{name}"
    size = sum(file.blob.size for file in files.values())
    if size > MAX_SAMPLE_BYTES:
        words = {"name": where, "most": MAX_SAMPLE_BYTES >> 20}
        raise CheckFailed(_("The files of the sample %(name)s are larger than %(most)d MiB.") % words)
    sample = read_sample(_json(files[".json"]), name, f"{where}.json") if ".json" in files else Sample(name, ())
    inputs = (*sample.inputs, *_arrays(files, ".npz", ""))
    if not inputs:
        raise CheckFailed(_("The sample %(name)s has no inputs.") % {"name": where})
    tolerance = _json(files[".tolerance.json"]) if ".tolerance.json" in files else None
    wanted = _response(files, where, tolerance)
    if tolerance is not None and sample.expected:
        raise CheckFailed(_("The sample %(name)s has its tolerance in two places.") % {"name": where})
    sample = replace(sample, inputs=inputs, expected=(*sample.expected, *wanted))
    require_small(sample, where)
    return sample


def _response(files: Mapping[str, VersionFile], where: str, tolerance: Any) -> tuple[Expected, ...]:
    """Return what files beside the request expect."""
    tensors = _arrays(files, ".expected.npz", "expected/")
    # read as a sample of its own: the same rules for tensors and tolerances
    blank = {"name": "x", "datatype": "BOOL", "shape": [0], "data": []}
    outputs: list[Any] = []
    if ".expected.json" in files:
        document = _json(files[".expected.json"])
        outputs = document.get("outputs", []) if isinstance(document, dict) else []
        if not outputs:
            raise CheckFailed(_("%(name)s is no response with a list “outputs”.") % {"name": f"{where}.expected.json"})
    asked = {"inputs": [blank], "expected": outputs, "tolerance": tolerance}
    expected = read_sample(asked, "", f"{where}.expected.json").expected
    common = read_sample({**asked, "expected": [blank]}, "", where).expected[0]
    given = (common.absolute, common.relative) if tolerance is not None else None
    return (*expected, *(expected_of(tensor, given) for tensor in tensors))


def _arrays(files: Mapping[str, VersionFile], archive: str, folder: str) -> Iterator[Tensor]:
    """Yield the arrays of an archive, and of the single files in a folder."""
    if archive in files:
        yield from _unzipped(files[archive])
    for path, file in sorted(files.items()):
        name = path.removeprefix(folder).removesuffix(".npy")
        if path.endswith(".npy") and path.startswith(folder) and name and "/" not in name:
            yield _array(name, _content(file), file.path)


def _unzipped(file: VersionFile) -> Iterator[Tensor]:
    try:
        with zipfile.ZipFile(io.BytesIO(_content(file))) as archive:
            members = archive.infolist()
            if len(members) > _MAX_ARRAYS or sum(one.file_size for one in members) > MAX_SAMPLE_BYTES:
                words = {"name": file.path, "most": MAX_SAMPLE_BYTES >> 20}
                raise CheckFailed(_("%(name)s unpacks to more than %(most)d MiB.") % words)
            for member in members:
                yield _array(member.filename.removesuffix(".npy"), archive.read(member), file.path)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise CheckFailed(_("%(name)s cannot be read: %(why)s.") % {"name": file.path, "why": error}) from error


def _array(name: str, data: bytes, path: str) -> Tensor:
    """Return an array as numpy saves it; objects are refused, because they are pickles."""
    stream = io.BytesIO(data)
    try:
        read_header = _HEADERS[np.lib.format.read_magic(stream)]
        shape, is_fortran, dtype = read_header(stream)
        count = math.prod(shape)
        if dtype.hasobject or count * dtype.itemsize != len(data) - stream.tell():
            raise ValueError(_("its size is not that of its shape, or it holds objects"))
        values = np.frombuffer(data, dtype, count, stream.tell()).reshape(shape, order="F" if is_fortran else "C")
        datatype, raw = _encoded(values)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckFailed(_("%(name)s is no array: %(why)s.") % {"name": path, "why": str(error)[:200]}) from error
    return Tensor(name, datatype, tuple(int(one) for one in shape), raw)


def _encoded(values: Any) -> tuple[str, bytes]:
    kind = values.dtype.kind
    if kind in "US":
        texts = [one.encode() if isinstance(one, str) else bytes(one) for one in values.ravel(order="C").tolist()]
        return "BYTES", b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    datatype = _KINDS.get(f"{kind}{values.dtype.itemsize}")
    if datatype is None:
        raise ValueError(_("%(dtype)s is no data type of tensors") % {"dtype": values.dtype})
    return datatype, values.astype(values.dtype.newbyteorder("<")).tobytes(order="C")


def _json(file: VersionFile) -> Any:
    if file.blob.size > MAX_DOCUMENT_BYTES:
        raise CheckFailed(_("%(name)s is larger than 1 MiB.") % {"name": file.path})
    try:
        return json.loads(_content(file))
    except (ValueError, RecursionError) as error:
        raise CheckFailed(_("%(name)s is no JSON: %(why)s") % {"name": file.path, "why": error}) from error


def _content(file: VersionFile) -> bytes:
    return b"".join(artifact_store().open_range(file.blob.sha256))
