"""Model folders: which versions load, what a failure leaves behind, what the index says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.repository.repository import ControlMode, ModelRepository

from .served import FakeLoader, calls, request

Make = Callable[..., ModelRepository]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader()


@pytest.fixture
def make(folder: Path, loader: FakeLoader) -> Make:
    def repository(mode: ControlMode = ControlMode.EXPLICIT, **more: object) -> ModelRepository:
        folder.mkdir(exist_ok=True)
        return ModelRepository([folder], loader, mode=mode, **more)  # type: ignore[arg-type]

    return repository


def add_model(folder: Path, name: str, versions: tuple[str, ...] = ("1",), config: str | None = None) -> Path:
    path = folder / name
    for version in versions:
        (path / version).mkdir(parents=True, exist_ok=True)
        (path / version / "model.onnx").write_bytes(b"weights")
    if config is not None:
        (path / "config.pbtxt").write_text(config)
    return path


def loaded_versions(loader: FakeLoader) -> list[int]:
    return sorted(order.version for order in loader.orders)


async def test_start_loads_every_model_in_mode_none(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "a")
    add_model(folder, "b")
    repository = make(ControlMode.NONE)
    assert not repository.ready()
    assert await repository.start() == []
    assert repository.ready()
    assert sorted(order.name for order in loader.orders) == ["a", "b"]
    assert loader.orders[0].config.backend == "onnxruntime", "detected from the file"
    with pytest.raises(InferenceError, match="not allowed if polling is enabled") as caught:
        await repository.load("a", None, {})
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_start_explicit_loads_only_what_was_named(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "a")
    add_model(folder, "b")
    repository = make(load_at_start=("b",))
    await repository.start()
    assert [order.name for order in loader.orders] == ["b"]
    assert [(row.name, row.state) for row in repository.index()] == [("a", None), ("b", ModelState.READY)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", [10]),
        ("version_policy { latest { num_versions: 2 } }", [9, 10]),
        ("version_policy { all {} }", [1, 9, 10]),
        ("version_policy { specific { versions: [1, 7] } }", [1]),
    ],
)
async def test_load_follows_the_version_policy(
    make: Make, folder: Path, loader: FakeLoader, policy: str, expected: list[int]
) -> None:
    add_model(folder, "m", ("1", "9", "10", "011", "draft"), policy)
    repository = make()
    await repository.load("m", None, {})
    assert loaded_versions(loader) == expected


async def test_load_unmodified_model_is_left_alone_and_a_changed_one_is_replaced(
    make: Make, folder: Path, loader: FakeLoader
) -> None:
    path = add_model(folder, "m")
    repository = make()
    await repository.load("m", None, {})
    await repository.load("m", None, {})
    assert len(loader.orders) == 1
    later = (path / "1" / "model.onnx").stat().st_mtime + 10
    os.utime(path / "1" / "model.onnx", (later, later))
    await repository.load("m", None, {})
    assert len(loader.orders) == 2
    await repository.close(5.0)
    assert calls(loader.loaded[0]) == ["drain", "close"]


async def test_load_failure_of_one_version_keeps_all_old_ones(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m", ("1",), "version_policy { all {} }")
    repository = make()
    await repository.load("m", None, {})
    add_model(folder, "m", ("2", "3"))
    os.utime(folder / "m", (9e9, 9e9))
    loader.failing["3"] = "no such opset"
    with pytest.raises(InferenceError) as caught:
        await repository.load("m", None, {})
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == (
        "load failed for model 'm': version 3 is at UNAVAILABLE state: Invalid argument: no such opset;\n"
    )
    assert repository.resolve("m", "", request()).version == 1
    rows = {row.version: (row.state, row.reason) for row in repository.index()}
    assert rows["1"] == (ModelState.READY, "")
    assert rows["3"] == (ModelState.UNAVAILABLE, "Invalid argument: no such opset")
    await repository.close(5.0)
    served = [one for one in loader.loaded if one.version == 2]
    assert calls(served[0]) == ["drain", "close"], "what loaded in vain is freed"


async def test_failed_model_makes_the_server_not_ready(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m")
    loader.failing["1"] = "broken"
    strict, lenient = make(ControlMode.NONE), make(ControlMode.NONE, strict_readiness=False)
    assert (await strict.start())[0].startswith("load failed for model 'm'")
    await lenient.start()
    assert not strict.ready()
    assert lenient.ready()


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("nowhere", ErrorCode.INTERNAL, "failed to load 'nowhere', failed to poll from model repository"),
        ("empty", ErrorCode.INVALID_ARG, "at least one version must be available under the version policy"),
        ("misnamed", ErrorCode.INTERNAL, "failed to load 'misnamed', failed to poll from model repository"),
        ("unknown", ErrorCode.INTERNAL, "failed to load 'unknown', failed to poll from model repository"),
        (".", ErrorCode.INTERNAL, "failed to load '.', failed to poll from model repository"),
        ("..", ErrorCode.INVALID_ARG, "must not contain path traversal characters"),
        ("", ErrorCode.INVALID_ARG, "Model name cannot be empty"),
        ("../m", ErrorCode.INVALID_ARG, "must not contain path traversal characters"),
    ],
)
async def test_load_refusals_use_tritons_words(make: Make, folder: Path, name: str, code: ErrorCode, text: str) -> None:
    (folder / "empty").mkdir(parents=True)
    (folder / "empty" / "config.pbtxt").write_text('backend: "onnxruntime"')
    add_model(folder, "misnamed", config='name: "other"')
    (folder / "unknown" / "1").mkdir(parents=True)
    with pytest.raises(InferenceError, match=text) as caught:
        await make().load(name, None, {})
    assert caught.value.code is code


async def test_unload_stops_at_once_and_ends_in_the_background(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m")
    repository = make()
    await repository.start()
    await repository.load("m", None, {})
    await repository.unload("m", False)
    with pytest.raises(InferenceError, match="has no available versions"):
        repository.resolve("m", "", request())
    async with asyncio.timeout(5):
        while repository.index()[0].state is not ModelState.UNAVAILABLE:
            await asyncio.sleep(0)
    assert repository.index()[0].reason == "unloaded"
    assert calls(loader.loaded[0]) == ["drain", "close"]
    assert repository.ready(), "unloaded on purpose is no failure"
    await repository.unload("never-seen", False)
    await repository.load("m", None, {})
    assert repository.resolve("m", "", request()).version == 1


async def test_load_config_override_replaces_the_file_and_sticks(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m", config="max_batch_size: 4")
    repository = make()
    await repository.load("m", '{"backend": "identity", "max_batch_size": 2}', {})
    assert (loader.orders[0].config.backend, loader.orders[0].config.max_batch_size) == ("identity", 2)
    await repository.load("m", None, {})
    assert len(loader.orders) == 1


async def test_load_bad_override_is_refused_and_keeps_what_serves(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m")
    repository = make()
    await repository.load("m", None, {})
    with pytest.raises(InferenceError, match="failed to poll from model repository") as caught:
        await repository.load("m", '{"no_such_field": 1}', {})
    assert caught.value.code is ErrorCode.INTERNAL
    assert repository.resolve("m", "", request()).version == 1


async def test_load_files_builds_the_model_from_them_only(make: Make, folder: Path, loader: FakeLoader) -> None:
    repository = make()
    await repository.load("m", '{"backend": "onnxruntime"}', {"7/model.onnx": b"uploaded"})
    order = loader.orders[0]
    assert (order.version, (order.directory / "model.onnx").read_bytes()) == (7, b"uploaded")
    with pytest.raises(InferenceError):
        await repository.load("m", '{"backend": "onnxruntime"}', {"../../outside": b"x"})
    await repository.close(5.0)
    assert not order.directory.exists(), "uploads leave nothing behind"


async def test_model_in_two_repositories_is_not_loaded(tmp_path: Path, loader: FakeLoader) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    add_model(one, "m")
    add_model(two, "m")
    repository = ModelRepository([one, two], loader)
    assert await repository.start()
    assert not loader.orders
    assert repository.index()[0].reason == "model appears in two or more repositories"
