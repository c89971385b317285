"""Backends that other packages bring, and what decides where a model runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from serving_node.backends import loader
from serving_node.backends.hosted.backend import HostedBackend
from serving_node.backends.loader import Backends
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.backend import Host
from serving_node.core.errors import InferenceError
from serving_node.scheduling.code_rules import chosen_host

from .conftest import Models

ROOT = Path(__file__).parents[4]


def documented(language: str) -> list[str]:
    """Return the blocks of the page on adding a backend."""
    page = (ROOT / "docs/howto/add-a-backend.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def linear_file(folder: Path) -> dict[str, bytes]:
    path = folder / "model.npz"
    np.savez(path, weights=np.arange(6, dtype=np.float32).reshape(2, 3), bias=np.ones(3, np.float32))
    return {"model.npz": path.read_bytes()}


CONFIG = 'backend: "linear" max_batch_size: 8'
THREAD = ' parameters { key: "flotilla.host" value { string_value: "thread" } }'


async def _answers(models: Models, config: str, folder: Path) -> bool:
    model = await models.load(config, files=linear_file(folder))
    x = np.array([[1, 2], [3, 4]], np.float32)
    asked = models.submit(model, x, name="X")
    expected = x @ np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    return np.array_equal(await asked.array(), expected)


async def test_the_documented_backend_serves_in_a_worker(
    models: Models, brought: Callable[..., None], tmp_path: Path
) -> None:
    (source,) = documented("python")
    assert 'linear = "linear_backend:backend"' in documented("toml")[0]
    assert CONFIG.split() == documented("protobuf")[0].split()
    brought("linear", "linear_backend", source)
    assert await _answers(models, CONFIG, tmp_path)
    assert "linear_backend" not in sys.modules
    broken = {"model.npz": b"no archive"}
    with pytest.raises(InferenceError, match=r"cannot read 'model\.npz'") as refused:
        await models.load(CONFIG, files=broken)
    assert refused.value.code is ErrorCode.INVALID_ARG


@pytest.mark.parametrize(("declared", "listed"), [(True, False), (False, True)])
async def test_one_word_for_threads_is_not_enough(
    models: Models, brought: Callable[..., None], tmp_path: Path, declared: bool, listed: bool
) -> None:
    brought("linear", "linear_backend", documented("python")[0], in_process=declared)
    models.backends = Backends(in_process=["linear"] if listed else [])
    assert await _answers(models, CONFIG, tmp_path)
    assert "linear_backend" not in sys.modules
    with pytest.raises(InferenceError) as refused:
        await models.load(CONFIG + THREAD)
    assert refused.value.message == "backend 'linear' runs in worker processes only: 'flotilla.host' cannot be 'thread'"


async def test_author_and_operator_together_let_a_backend_into_the_node(
    models: Models, brought: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought("linear", "linear_backend", documented("python")[0], in_process=True)
    models.backends = Backends(in_process=["linear"])
    monkeypatch.delitem(sys.modules, "linear_backend", raising=False)
    assert await _answers(models, CONFIG, tmp_path)
    assert "linear_backend" in sys.modules
    monkeypatch.delitem(sys.modules, "linear_backend")


def test_a_backend_that_nobody_brings_is_refused_as_triton_does() -> None:
    with pytest.raises(InferenceError) as refused:
        Backends().get("caffe")
    assert refused.value.message == (
        "unable to find backend library for backend 'caffe', try specifying runtime on the model configuration."
    )


async def test_a_package_that_does_not_have_what_it_names_is_a_load_error(
    models: Models, brought: Callable[..., None]
) -> None:
    brought("linear", "linear_backend", "# nothing\n")
    with pytest.raises(InferenceError, match="AttributeError: module 'linear_backend' has no attribute 'backend'"):
        await models.load(CONFIG)


# -- ONNX Runtime in either host


def _onnx() -> bytes:
    """Return x @ w, dynamic in its rows."""
    weights = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["IN", "w"], ["OUT"])],
        "g",
        [helper.make_tensor_value_info("IN", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("OUT", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor("w", TensorProto.FLOAT, [4, 3], weights.tobytes(), raw=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


async def test_both_hosts_of_onnx_runtime_give_the_same_bits(models: Models) -> None:
    x = np.random.default_rng(2).standard_normal((7, 4)).astype(np.float32)
    answers = []
    for host in ("thread", "process"):
        config = f'backend: "onnxruntime" max_batch_size: 8 {THREAD.replace("thread", host)}'
        model = await models.load(config, files={"model.onnx": _onnx()})
        answers.append((await models.submit(model, x).array()).tobytes())
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        ('backend: "onnxruntime"', ["model.onnx", "export.py"], None),
        ('backend: "onnxruntime" model_operations { op_library_filename: "ops.so" }', ["model.onnx"], "process"),
        ('backend: "mine"', ["model.bin"], None),
        ('backend: "mine"', ["model.bin", "deep/more.py"], "process"),
        ('backend: "onnxruntime"' + THREAD, ["model.onnx"], "thread"),
    ],
)
def test_code_decides_what_runs_a_model(tmp_path: Path, config: str, files: list[str], expected: str | None) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert chosen_host(parse_pbtxt(config), tmp_path, code_permitted=True) == expected


def test_code_never_runs_in_a_thread(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("")
    with pytest.raises(InferenceError, match=r"is code and runs in worker processes only: model.pt \(a TorchScript"):
        chosen_host(parse_pbtxt('name: "m" backend: "pytorch"' + THREAD), tmp_path, code_permitted=True)


async def test_code_that_is_not_permitted_is_not_loaded(models: Models) -> None:
    mark = models.folder / "ran"
    source = f"open({str(mark)!r}, 'w')\nclass TritonPythonModel:\n    pass\n".encode()
    with pytest.raises(InferenceError) as refused:
        await models.load('name: "m" backend: "python"', files={"model.py": source}, code_permitted=False)
    assert refused.value.message == (
        "model 'm' has code that is not permitted to run on this node: model.py (Python source)"
    )
    assert refused.value.code is ErrorCode.UNSUPPORTED and not mark.exists()


async def test_memory_of_inputs_comes_back_with_the_answer(models: Models) -> None:
    group = "instance_group [ { count: 1 kind: KIND_CPU } ]"
    config = f'backend: "onnxruntime" max_batch_size: 9000 {group} {THREAD.replace("thread", "process")}'
    model = await models.load(config, files={"model.onnx": _onnx()})
    (runner,) = model.scheduler._instances  # type: ignore[attr-defined]
    for rows in (3000, 9000, 3000):
        await models.submit(model, np.ones((rows, 4), np.float32)).array()
        assert runner.instance._worker.link.blocks_in_use[0] == 0


@pytest.mark.parametrize("value", ["true", "1"])
def test_engines_that_bring_code_are_opened_in_workers(value: str) -> None:
    backends = Backends({"tensorrt": {"version-compatible": value}})
    assert isinstance(backends.get("tensorrt"), HostedBackend)
    with pytest.raises(InferenceError, match="backend 'tensorrt' runs in worker processes only"):
        backends.get("tensorrt", Host.THREAD)


def test_a_backend_that_is_written_in_python_has_no_threads(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.py").write_text("")
    with pytest.raises(InferenceError, match="backend 'mine' runs in worker processes only"):
        Backends(directory=tmp_path).get("mine", Host.THREAD)


def test_the_reference_says_where_each_backend_runs() -> None:
    page = (ROOT / "docs/reference/backends.md").read_text()
    page = next(part for part in page.split("\n\n") if part.startswith("| Backend | Files |"))
    rows = dict(re.findall(r"^\| \[?`(\w+)`(?:\]\([^)]*\))? \|.*?\| ([a-z ]+) \| [^|]*\|$", page, re.MULTILINE))
    hosts = {name: "threads" if known.host is Host.THREAD else "process" for name, known in loader._KNOWN.items()}
    assert {name: "threads" if where == "threads" else "process" for name, where in rows.items()} == hosts
