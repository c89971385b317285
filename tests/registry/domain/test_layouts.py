"""What a bunch of files is, by names and by the files that describe it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.layouts import LayoutKind, archive_among, is_apart, recognise
from registry.errors import ValidationFailed


def seen(paths: list[str], texts: dict[str, str] | None = None) -> tuple[str, list[tuple[str, dict[str, str]]]]:
    layout = recognise(paths, lambda path: (texts or {}).get(path, ""))
    return layout.kind.value, [(one.model, dict(one.files)) for one in layout.versions]


@pytest.mark.parametrize(
    ("paths", "archive"),
    [
        (["model.zip"], "model.zip"),
        (["model.tar.gz", "config.pbtxt"], "model.tar.gz"),
        (["net.MAR"], "net.MAR"),
        (["model.pt"], ""),
        (["a.zip", "b.zip"], ""),
        (["below/a.zip"], ""),
        (["model.onnx", "a.zip"], ""),
    ],
)
def test_an_archive_stands_alone(paths: list[str], archive: str) -> None:
    assert archive_among(paths) == archive


@pytest.mark.parametrize(
    "paths",
    [
        ["model.onnx"],
        ["model.onnx", "labels/names.txt"],
        ["model.py", "1/weights.bin"],
        ["model.py", "model.safetensors", "requirements.txt"],
        ["openvino/model.xml", "openvino/model.bin"],
        ["0/model.onnx"],
    ],
)
def test_the_files_of_one_version_stay_as_they_are(paths: list[str]) -> None:
    assert seen(paths) == ("files", [("", {path: path for path in paths})])
    assert not is_apart(paths)


@pytest.mark.parametrize("top", ["", "net/"])
def test_a_model_folder_makes_a_version_for_each_number_in_order(top: str) -> None:
    paths = [f"{top}{path}" for path in ("config.pbtxt", "labels.txt", "10/model.onnx", "2/model.onnx", "2/w/data.bin")]
    kind, versions = seen(paths)
    assert kind == "triton_model"
    shared = {"config.pbtxt": f"{top}config.pbtxt", "labels.txt": f"{top}labels.txt"}
    assert versions == [
        ("", {**shared, "model.onnx": f"{top}2/model.onnx", "w/data.bin": f"{top}2/w/data.bin"}),
        ("", {**shared, "model.onnx": f"{top}10/model.onnx"}),
    ]
    assert is_apart(paths)


ENSEMBLE = 'ensemble_scheduling { step [ { model_name: "%s" model_version: -1 } ] }'


@pytest.mark.parametrize("top", ["", "models/"])
def test_a_repository_makes_what_is_called_first(top: str) -> None:
    paths = [
        f"{top}{p}" for p in ("all/config.pbtxt", "all/1/x", "net/1/model.onnx", "zoo/config.pbtxt", "zoo/1/model.py")
    ]
    kind, versions = seen(paths, {f"{top}all/config.pbtxt": ENSEMBLE % "zoo"})
    assert kind == "triton_repository"
    names = [name for name, _files in versions]
    assert sorted(names) == ["all", "net", "zoo"]
    assert names.index("zoo") < names.index("all")


def test_ensembles_in_a_circle_are_named() -> None:
    paths = ["a/config.pbtxt", "a/1/x", "b/config.pbtxt", "b/1/x"]
    texts = {"a/config.pbtxt": ENSEMBLE % "b", "b/config.pbtxt": ENSEMBLE % "a"}
    with pytest.raises(ValidationFailed, match=r"in a circle: . → . → ."):
        seen(paths, texts)
    assert is_apart(paths)


ONNX_FLAVOR = "run_id: abc\nflavors:\n  onnx: {data: model.onnx}\n  python_function: {loader_module: mlflow.onnx}\n"


@pytest.mark.parametrize(
    ("text", "paths", "files"),
    [
        (ONNX_FLAVOR, ["MLmodel", "model.onnx", "conda.yaml"], {"model.onnx": "model.onnx"}),
        (
            "flavors: {onnx: {data: data/net.onnx}}",
            ["MLmodel", "data/net.onnx", "data/net.data", "code/x.py"],
            {"model.onnx": "data/net.onnx", "net.data": "data/net.data"},
        ),
        ("flavors: {pytorch: {model_data: data}}", ["MLmodel", "data/model.pth"], {"model.pt": "data/model.pth"}),
        ("flavors: {sklearn: {pickled_model: model.pkl}}", ["MLmodel", "model.pkl"], {"model.pkl": "model.pkl"}),
    ],
)
def test_an_mlflow_model_gives_its_best_flavor(text: str, paths: list[str], files: dict[str, str]) -> None:
    assert seen(paths, {"MLmodel": text}) == ("mlflow", [("", files)])
    below = [f"model/{path}" for path in paths]
    moved = {name: f"model/{where}" for name, where in files.items()}
    assert seen(below, {"model/MLmodel": text}) == ("mlflow", [("", moved)])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("flavors: {onnx: {data: gone.onnx}}", "gone.onnx"),
        ("flavors: {spark: {}}", "only the flavors spark"),
        ("{}", "only the flavors -"),
        ("- a", "does not hold"),
        ("flavors: [1]", "does not hold"),
        ("flavors: {onnx: 3}", "does not hold"),
        ("a: [", "as YAML"),
        ("!!python/object/apply:os.system ['true']", "as YAML"),
    ],
)
def test_what_is_wrong_with_an_mlflow_model_is_said(text: str, why: str) -> None:
    with pytest.raises(ValidationFailed, match=why):
        seen(["MLmodel", "model.onnx"], {"MLmodel": text})


def manifest(**model: str) -> str:
    return json.dumps({"model": {"modelName": "net", "handler": "image_classifier", **model}})


def test_a_mar_gives_its_network_without_its_handler() -> None:
    paths = ["MAR-INF/MANIFEST.json", "net.pt", "handler.py", "index_to_name.json"]
    layout = recognise(paths, lambda path: manifest(serializedFile="net.pt"))
    assert layout.kind == LayoutKind.MAR
    (only,) = layout.versions
    assert only.files == {"model.pt": "net.pt", "index_to_name.json": "index_to_name.json"}
    assert "image_classifier is not run" in only.notes[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (manifest(serializedFile="gone.pt"), "gone.pt"),
        (manifest(), "no file"),
        (manifest(serializedFile="net.pt", modelFile="net.py"), "torch.export"),
        ("{", "as JSON"),
        ("[]", "does not hold"),
        ("[" * 100_000, "as JSON"),
    ],
)
def test_what_is_wrong_with_a_mar_is_said(text: str, why: str) -> None:
    with pytest.raises(ValidationFailed, match=why):
        seen(["MAR-INF/MANIFEST.json", "net.pt"], {"MAR-INF/MANIFEST.json": text})


parts = st.sampled_from(["1", "2", "a", "b", "config.pbtxt", "model.onnx", "MLmodel", "MAR-INF", "MANIFEST.json"])


@given(st.lists(st.lists(parts, min_size=1, max_size=4).map("/".join), min_size=1, max_size=8, unique=True), st.text())
def test_any_files_make_versions_of_files_that_are_there(paths: list[str], text: str) -> None:
    try:
        layout = recognise(paths, lambda path: text)
    except ValidationFailed:
        return
    for version in layout.versions:
        assert set(version.files.values()) <= set(paths)
        assert version.files
