"""Model folders: which versions load, what a failure leaves behind, what the index says."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import ModelConfig
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
    async with asyncio.timeout(30):
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


def resizable(loader: FakeLoader, resized: list[int], refuse: str = "") -> None:
    """Let the models that were loaded change their instances."""
    for one in loader.loaded:

        async def resize(config: ModelConfig) -> None:
            if refuse:
                raise InferenceError(ErrorCode.INTERNAL, refuse)
            resized.append(config.instance_group[0].count)

        one.resize = resize


async def test_other_instances_do_not_reload(make: Make, folder: Path, loader: FakeLoader) -> None:
    path = add_model(folder, "m", ("1", "2"), "version_policy { all {} } instance_group { count: 1 }")
    repository = make()
    await repository.load("m", None, {})
    served, resized = list(loader.loaded), list[int]()
    resizable(loader, resized)
    modify(path / "config.pbtxt", "version_policy { specific { versions: 2 } } instance_group { count: 3 }")
    await repository.load("m", None, {})
    assert (len(loader.orders), resized) == (2, [3])
    assert list(repository.models()) == served[1:], "version 1 is not asked for any more"
    resizable(loader, resized, "no memory for that")
    modify(path / "config.pbtxt", "version_policy { all {} } instance_group { count: 9 }")
    with pytest.raises(InferenceError) as caught:
        await repository.load("m", None, {})
    reason = "version 2 is at READY state: Internal: no memory for that;"
    assert caught.value.message == f"load failed for model 'm': {reason}\n"
    assert list(repository.models()) == served[1:]
    modify(path / "2" / "model.onnx", "other weights")
    await repository.load("m", None, {})
    assert repository.resolve("m", "", request()) not in served, "other files are a reload"
    await repository.close(5.0)


def modify(path: Path, text: str) -> None:
    """Write a file and let it look newer than all that were written before."""
    modify.clock += 10**9  # type: ignore[attr-defined]
    path.write_text(text)
    os.utime(path, ns=(modify.clock, modify.clock))  # type: ignore[attr-defined]


modify.clock = 4 * 10**18  # type: ignore[attr-defined]


async def test_poll_follows_the_folders(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "a")
    gone = add_model(folder, "b")
    repository = make(ControlMode.POLL)
    assert await repository.start() == []
    assert await repository.poll() == []
    assert len(loader.orders) == 2, "nothing changed"
    add_model(folder, "c")
    shutil.rmtree(gone)
    modify(folder / "a" / "1" / "model.onnx", "other weights")
    assert await repository.poll() == []
    assert sorted(order.name for order in loader.orders[2:]) == ["a", "c"]
    assert [row.name for row in repository.index()] == ["a", "c"]
    with pytest.raises(InferenceError, match="'b' has no available versions"):
        repository.resolve("b", "", request())
    with pytest.raises(InferenceError, match="not allowed if polling is enabled"):
        await repository.load("a", None, {})
    with pytest.raises(InferenceError, match="not allowed if polling is enabled"):
        await repository.unload("a", False)
    assert repository.ready()
    await repository.close(5.0)


async def test_poll_keeps_what_serves_when_a_folder_breaks(make: Make, folder: Path, loader: FakeLoader) -> None:
    path = add_model(folder, "m", config="")
    repository = make(ControlMode.POLL)
    await repository.start()
    served = repository.resolve("m", "", request())
    modify(path / "config.pbtxt", "nonsense {")
    assert len(await repository.poll()) == 1
    loader.failing["1"] = "no such opset"
    modify(path / "config.pbtxt", "")
    assert "no such opset" in (await repository.poll())[0]
    assert repository.resolve("m", "", request()) is served
    assert len(await repository.poll()) == 1, "it is tried again until it works"
    loader.failing.clear()
    assert await repository.poll() == []
    assert repository.resolve("m", "", request()) is not served
    folder.rename(folder.with_name("away"))
    assert "cannot be read" in (await repository.poll())[0]
    assert repository.resolve("m", "", request()) is not None, "a repository that cannot be read is not empty"
    await repository.close(5.0)


async def test_model_that_comes_twice_is_unloaded_by_a_poll(tmp_path: Path, loader: FakeLoader) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    add_model(one, "m")
    two.mkdir()
    repository = ModelRepository([one, two], loader, mode=ControlMode.POLL)
    assert await repository.start() == []
    add_model(two, "m")
    assert "two or more repositories" in (await repository.poll())[0]
    with pytest.raises(InferenceError, match="has no available versions"):
        repository.resolve("m", "", request())
    await repository.close(5.0)


async def test_failed_load_is_tried_again_as_often_as_told(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m")
    loader.failing["1"] = "no luck"
    with pytest.raises(InferenceError, match="no luck"):
        await make(load_retries=2).load("m", None, {})
    assert len(loader.orders) == 3


async def test_names_in_several_repositories(tmp_path: Path, loader: FakeLoader) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    add_model(one, "same")
    add_model(two, "same")
    add_model(two, "single")
    options = {"mode": ControlMode.EXPLICIT, "namespacing": True, "load_at_start": ("*",)}
    repository = ModelRepository([one, two], loader, **options)  # type: ignore[arg-type]
    assert await repository.start() == []
    assert [(row.name, row.state) for row in repository.index()] == [
        ("same", ModelState.READY),
        ("same", ModelState.READY),
        ("single", ModelState.READY),
    ]
    assert repository.resolve("single", "", request()).name == "single"
    for name, code, text in (
        ("same", ErrorCode.INVALID_ARG, "There are 2 identifiers of model 'same' in global map, model namespace must"),
        ("unknown", ErrorCode.INVALID_ARG, "Request for unknown model: 'unknown' is not found"),
    ):
        with pytest.raises(InferenceError, match=text) as caught:
            repository.resolve(name, "", request())
        assert caught.value.code is code
    await repository.unload("same", False)
    with pytest.raises(InferenceError, match="Identifier of model 'same' is not found in global map") as caught:
        repository.resolve("same", "", request())
    assert caught.value.code is ErrorCode.NOT_FOUND
    shutil.rmtree(two / "same")
    await repository.load("same", None, {})
    assert repository.resolve("same", "", request()).name == "same"
    await repository.close(5.0)


async def test_changes_of_one_name_wait_for_each_other(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m")
    loader.gate = asyncio.Event()
    repository = make()
    loading = asyncio.ensure_future(repository.load("m", None, {}))
    async with asyncio.timeout(30):
        while not loader.orders:
            await asyncio.sleep(0)
    assert [row.state for row in repository.index()] == [ModelState.LOADING]
    unloading = asyncio.ensure_future(repository.unload("m", False))
    again = asyncio.ensure_future(repository.load("m", None, {}))
    loader.gate.set()
    await asyncio.gather(loading, unloading, again)
    assert len(loader.orders) == 2, "loaded, unloaded, loaded"
    assert repository.resolve("m", "", request()) is loader.loaded[1]
    await repository.close(5.0)


async def test_temporary_files_go_with_what_was_built_from_them(make: Make, folder: Path, loader: FakeLoader) -> None:
    add_model(folder, "m")
    repository = make()
    await repository.load("m", '{"backend": "identity"}', {"1/model.onnx": b"one"})
    first = loader.orders[0].directory
    loader.failing["2"] = "broken"
    with pytest.raises(InferenceError, match="broken"):
        await repository.load("m", '{"backend": "identity"}', {"2/model.onnx": b"two"})
    await settled(repository)
    assert first.exists()
    assert not loader.orders[1].directory.exists(), "a failed load leaves nothing behind"
    await repository.load("m", None, {})
    assert loader.orders[2].directory == folder / "m" / "1", "uploads do not stick"
    await settled(repository)
    assert not first.exists()
    await repository.close(5.0)


async def settled(repository: ModelRepository) -> None:
    async with asyncio.timeout(30):
        while repository._retiring:
            await asyncio.sleep(0)
