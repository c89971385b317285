"""Files are what they hold, whatever they are called."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversion.errors import ConversionFailed
from conversion.formats import ModelFormat, recognise, require_convertible
from tests.conversion import models


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(zipfile.ZipInfo(name), "x")  # always of the same date: every process must make the same bytes
    return buffer.getvalue()


KINDS = [
    (models.network().SerializeToString(), ModelFormat.ONNX),
    (archive("m/archive_format", "m/models/model.json"), ModelFormat.TORCH_EXPORT),
    (archive("serialized_exported_program.json"), ModelFormat.TORCH_EXPORT),
    (archive("m/archive_format", "m/data/aotinductor/model/a.so"), ModelFormat.AOTINDUCTOR),
    (archive("m/constants.pkl", "m/data.pkl", "m/code/__torch__.py"), ModelFormat.TORCHSCRIPT),
    (archive("m/data.pkl", "m/data/0"), ModelFormat.TORCH_WEIGHTS),
    (archive("schema.json", "1.npy"), ModelFormat.SKOPS),
    (archive("letter.txt"), ModelFormat.UNKNOWN),
    (archive("schema.json")[:-10], ModelFormat.CUT_ZIP),
    (pickle.dumps({}), ModelFormat.PICKLE),
    (pickle.dumps({}, protocol=2), ModelFormat.PICKLE),
    (b'{"learner":{"attributes":{}}}', ModelFormat.XGBOOST),
    (b' {\n "version": [3,2,0],\n "learner": {}}', ModelFormat.XGBOOST),
    (b'{"version": 1}', ModelFormat.UNKNOWN),
    (b"{L" + (7).to_bytes(8, "big") + b"learner{", ModelFormat.XGBOOST),
    (b"tree\nversion=v4\n", ModelFormat.LIGHTGBM),
    (b"trees of the wood", ModelFormat.UNKNOWN),
]


@pytest.mark.parametrize(("content", "kind"), KINDS, ids=range(len(KINDS)))
def test_content_tells_the_kind(tmp_path: Path, content: bytes, kind: ModelFormat) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    assert recognise(path) is kind


def test_compressed_pickles_are_known_by_their_names(tmp_path: Path) -> None:
    import gzip

    content = gzip.compress(pickle.dumps({}))
    for name, kind in (("model.pkl.gz", ModelFormat.PICKLE), ("notes.gz", ModelFormat.UNKNOWN)):
        path = tmp_path / name
        path.write_bytes(content)
        assert recognise(path) is kind


@given(st.binary(max_size=200) | st.sampled_from([content for content, _ in KINDS]).map(lambda one: one[:60]))
def test_any_content_is_something(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(content)
    assert recognise(path) in ModelFormat


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (archive("m/constants.pkl", "m/data.pkl"), "is TorchScript"),
        (archive("m/data.pkl"), "holds PyTorch weights"),
        (archive("m/data/aotinductor/a.so"), "is an AOTInductor package"),
        (archive("schema.json")[:-10], "ends too early"),
        (b"hello", "is no ONNX file, PyTorch exported program"),
    ],
)
def test_what_cannot_be_converted_is_told_what_to_do(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "model.x"
    path.write_bytes(content)
    with pytest.raises(ConversionFailed, match=sentence):
        require_convertible(path)
    with pytest.raises(ConversionFailed, match="There is no file"):
        require_convertible(tmp_path / "gone")


def test_cut_onnx_is_said(tmp_path: Path) -> None:
    from conversion import onnx_file

    path = tmp_path / "model.onnx"
    path.write_bytes(models.network().SerializeToString()[:-40])
    with pytest.raises(ConversionFailed, match="cut or damaged"):
        onnx_file.read(path)
    path.write_bytes(onnx.ModelProto(ir_version=8).SerializeToString())
    with pytest.raises(ConversionFailed, match="holds no graph"):
        onnx_file.read(path)
