"""What of a version is code: by its files, by its config, and never too little."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract import code_formats
from serving_node.contract.code_formats import CODE_TEXTS, CodeKind, CodePart, code_list, code_parts
from serving_node.contract.model_config import parse_json
from serving_node.contract.proto.model_config_pb2 import ModelConfig


def _config(backend: str = "", **fields: object) -> ModelConfig:
    return parse_json({"name": "m", "backend": backend, **fields})


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("model.py", CodeKind.PYTHON),
        ("deep/down/tool.PY", CodeKind.PYTHON),
        ("libops.so", CodeKind.LIBRARY),
        ("libops.so.1.2", CodeKind.LIBRARY),
        ("model.pt", CodeKind.TORCHSCRIPT),
        ("model.pt2", CodeKind.TORCH_PACKAGE),
        ("weights.pth", CodeKind.PICKLE),
        ("trees.joblib", CodeKind.PICKLE),
        ("requirements.txt", CodeKind.ENVIRONMENT),
        ("handler.mar", CodeKind.PACKAGE),
    ],
)
def test_a_file_of_an_unknown_engine_is_code_by_its_name(path: str, kind: CodeKind) -> None:
    assert code_parts([path, "labels.txt"], _config("mine")) == (CodePart(path, kind),)


@pytest.mark.parametrize(
    "path", ["model.onnx", "model.onnx.data", "model.safetensors", "model.plan", "model.xml", "a.so.d/x"]
)
def test_data_formats_are_no_code(path: str) -> None:
    assert code_parts([path], _config()) == ()


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "openvino"])
def test_engines_that_read_data_run_only_the_libraries_that_the_config_names(backend: str) -> None:
    files = ["model.onnx", "export.py", "libops.so"]
    assert code_parts(files, _config(backend)) == ()
    named = _config(backend, model_operations={"op_library_filename": ["libops.so"]})
    assert code_parts(files, named) == (CodePart("libops.so", CodeKind.LIBRARY),)


def test_the_model_file_of_an_engine_that_runs_code_counts_under_any_name() -> None:
    assert code_parts(["weights.bin"], _config("pytorch", default_model_filename="weights.bin")) == (
        CodePart("weights.bin", CodeKind.TORCHSCRIPT),
    )
    assert code_parts([], _config("python")) == (CodePart("model.py", CodeKind.PYTHON),)
    assert code_parts([], _config(platform="pytorch_libtorch")) == (CodePart("model.pt", CodeKind.TORCHSCRIPT),)


def test_an_environment_of_the_config_is_code() -> None:
    config = _config(
        "python", parameters={"EXECUTION_ENV_PATH": {"string_value": "$$TRITON_MODEL_DIRECTORY/env.tar.gz"}}
    )
    assert CodePart("$$TRITON_MODEL_DIRECTORY/env.tar.gz", CodeKind.ENVIRONMENT) in code_parts(["model.py"], config)


def test_an_ensemble_has_no_code_of_its_own() -> None:
    assert code_parts(["notes.py"], _config(platform="ensemble")) == ()


def test_the_words_for_people_name_files_and_reasons_and_stay_short() -> None:
    parts = code_parts(["model.py", "lib.so"], _config("python"))
    assert code_list(parts) == "lib.so (a native library), model.py (Python source)"
    many = code_parts([f"m{number}.py" for number in range(9)], _config("mine"))
    assert code_list(many).endswith("m4.py (Python source) and 4 more")
    assert set(CODE_TEXTS) == set(CodeKind)


@given(st.lists(st.text(max_size=12), max_size=6), st.sampled_from(["", "mine", "python", "pytorch"]))
def test_more_files_never_mean_less_code(paths: list[str], backend: str) -> None:
    fewer = set(code_parts(paths[1:], _config(backend)))
    assert fewer <= set(code_parts(paths, _config(backend)))


def test_the_reference_names_every_ending() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/backends.md").read_text()
    table = page.partition("\n## Code\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\.\w+)`", table)) == set(code_formats._BY_SUFFIX)
