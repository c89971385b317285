from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest

from registry.models import Upload
from registry.services.uploads import upload_store
from tests.workers import factories
from workers.checks.sample_files import samples_among
from workers.checks.verdicts import CheckFailed

pytestmark = pytest.mark.django_db

REQUEST = {"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [5]}]}


def array(values: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, values, allow_pickle=True)
    return out.getvalue()


def arrays(**values: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **values)
    return out.getvalue()


def read(files: dict[str, bytes]) -> Any:
    version = factories.make_version(factories.make_model(), files)
    for upload in Upload.objects.filter(version=version):
        upload_store(upload_id=upload.pk)
    return samples_among(version)


def test_every_form_of_a_sample() -> None:
    response = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [0.5]}]}
    found = read(
        {
            "sample_inputs.json": b"not looked at",
            "samples/README.md": b"words",
            "samples/a.json": json.dumps(REQUEST).encode(),
            "samples/a.expected.json": json.dumps(response).encode(),
            "samples/b.npz": arrays(x=np.arange(6, dtype=">i4").reshape(2, 3)),
            "samples/b.expected.npz": arrays(y=np.array([True, False])),
            "samples/c/x.npy": array(np.asfortranarray(np.eye(2, 3, dtype=np.float16))),
            "samples/c/text.npy": array(np.array(["a", "bc"])),
            "samples/c/expected/y.npy": array(np.float64(2)),
            "samples/c.tolerance.json": b'{"absolute": 0.25}',
        }
    )
    assert [sample.name for sample in found] == ["a", "b", "c"]
    a, b, c = found
    assert (a.expected[0].tensor.name, a.expected[0].relative) == ("y", 1e-4)
    assert (b.inputs[0].datatype, b.inputs[0].shape) == ("INT32", (2, 3))
    assert b.inputs[0].data == np.arange(6, dtype="<i4").tobytes()
    assert (b.expected[0].tensor.datatype, b.expected[0].tensor.data) == ("BOOL", b"\1\0")
    assert {one.name: one.datatype for one in c.inputs} == {"x": "FP16", "text": "BYTES"}
    assert next(one.data for one in c.inputs if one.name == "x") == np.eye(2, 3, dtype="<f2").tobytes()
    assert (c.expected[0].tensor.shape, c.expected[0].absolute, c.expected[0].relative) == ((), 0.25, 0.0)


def test_a_version_without_any() -> None:
    assert read({"model.onnx": b"x"}) == ()


def bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(33 << 20))
    return out.getvalue()


HUGE = array(np.zeros(4, np.int8)).replace(b"(4,)", b"(9999999999,)")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"samples/a.npz": bomb()}, "unpacks to more than 32 MiB"),
        ({"samples/a.npz": b"PK"}, "cannot be read"),
        ({"samples/a/x.npy": b"\x93NUMPY"}, "is no array"),
        ({"samples/a/x.npy": HUGE}, "is no array"),
        ({"samples/a/x.npy": array(np.array([print], dtype=object))}, "is no array"),
        ({"samples/a/x.npy": array(np.array([1j]))}, "complex128 is no data type"),
        ({"samples/a.expected.npz": arrays(y=np.zeros(1))}, "has no inputs"),
        ({"samples/a.json": b"[]"}, "samples/a.json: A sample is an object"),
        ({"samples/a.json": b"{"}, "is no JSON"),
        ({"samples/a.json": json.dumps(REQUEST).encode(), "samples/a.expected.json": b"{}"}, "is no response"),
        ({f"samples/{n}.json": b"{}" for n in range(17)}, "has 17 samples"),
    ],
    ids=["bomb", "zip", "cut", "huge", "objects", "complex", "no_inputs", "list", "json", "response", "many"],
)
def test_what_cannot_be_read_fails(files: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(CheckFailed, match=sentence):
        read(files)
