"""Ensembles and their models: what is loaded, unloaded and loaded again because of what else."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.repository.loading import LoadOrder
from serving_node.repository.repository import ControlMode, ModelRepository
from serving_node.scheduling.served_model import ServedModel

from .served import FakeLoader, calls

_IO = 'input { name: "I" data_type: TYPE_INT32 dims: 1 } output { name: "O" data_type: TYPE_INT32 dims: 1 }'
_BACKEND = 'backend: "identity" '


class Loader(FakeLoader):
    """Serves what a config says; ``names`` are the models in the order in which they were loaded."""

    @property
    def names(self) -> list[str]:
        return [order.name for order in self.orders]

    async def __call__(self, order: LoadOrder) -> ServedModel:
        if order.name in self.failing:
            self.orders.append(order)
            raise InferenceError(ErrorCode.INVALID_ARG, self.failing[order.name])
        served = await super().__call__(order)
        served.config.CopyFrom(order.config)
        return served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


@pytest.fixture
def loader() -> Loader:
    return Loader()


def write(folder: Path, name: str, *steps: str, config: str = _BACKEND + _IO) -> None:
    """Write a model, or with steps an ensemble in which each model follows the one before."""
    if steps:
        tensors = ["I", *(f"T{number}" for number in range(1, len(steps))), "O"]
        parts = [
            f'step {{ model_name: "{step}" model_version: -1 input_map {{ key: "I" value: "{tensors[place]}" }}'
            f' output_map {{ key: "O" value: "{tensors[place + 1]}" }} }}'
            for place, step in enumerate(steps)
        ]
        config = f'platform: "ensemble" {_IO} ensemble_scheduling {{ {" ".join(parts)} }}'
    (folder / name / "1").mkdir(parents=True, exist_ok=True)
    path = folder / name / "config.pbtxt"
    is_new = not path.exists()
    path.write_text(config)
    if not is_new:
        later = path.stat().st_mtime + 10
        os.utime(path, (later, later))


def explicit(folder: Path, loader: Loader, **more: object) -> ModelRepository:
    return ModelRepository([folder], loader, mode=ControlMode.EXPLICIT, **more)  # type: ignore[arg-type]


def ready(repository: ModelRepository) -> list[str]:
    return sorted(served.name for served in repository.models())


async def test_an_ensemble_is_loaded_after_all_that_it_uses(folder: Path, loader: Loader) -> None:
    write(folder, "a")
    write(folder, "b")
    write(folder, "inner", "a")
    write(folder, "outer", "inner", "b")
    repository = explicit(folder, loader)
    await repository.load("outer", None, {})
    assert sorted(loader.names[:2]) == ["a", "b"]
    assert loader.names[2:] == ["inner", "outer"]


async def test_a_start_loads_models_before_ensembles_whatever_their_names(folder: Path, loader: Loader) -> None:
    write(folder, "a_outer", "b_inner")
    write(folder, "b_inner", "z")
    write(folder, "z")
    repository = ModelRepository([folder], loader, mode=ControlMode.NONE)
    assert await repository.start() == []
    assert loader.names == ["z", "b_inner", "a_outer"]
    assert repository.ready()


async def test_a_start_says_what_an_ensemble_lacks(folder: Path, loader: Loader) -> None:
    write(folder, "e", "nobody")
    repository = ModelRepository([folder], loader, mode=ControlMode.NONE)
    (failure,) = await repository.start()
    assert failure == (
        "load failed for model 'e': ensemble e contains models that are not available or ambiguous: nobody\n"
    )


async def test_polling_follows_a_model_that_comes_changes_and_goes(folder: Path, loader: Loader) -> None:
    write(folder, "e", "a")
    repository = ModelRepository([folder], loader, mode=ControlMode.POLL)
    await repository.start()
    assert ready(repository) == []
    write(folder, "a")
    assert await repository.poll() == []
    assert ready(repository) == ["a", "e"]
    loader.orders.clear()
    write(folder, "a")
    await repository.poll()
    assert loader.names == ["a", "e"]
    shutil.rmtree(folder / "a")
    await repository.poll()
    assert ready(repository) == []


async def test_what_is_inside_an_ensemble_is_answered_before_its_model_goes(folder: Path, loader: Loader) -> None:
    write(folder, "a")
    write(folder, "e", "a")
    repository = explicit(folder, loader)
    await repository.load("e", None, {})
    (ensemble,) = repository.table.versions("e")
    inside = asyncio.Event()

    async def drain(timeout_seconds: float) -> bool:
        assert ready(repository) == ["a"], "no new requests to the ensemble, while its model still serves"
        inside.set()
        return True

    ensemble.scheduler.drain = drain  # type: ignore[method-assign]
    await repository.unload("a", unload_dependents=False)
    assert inside.is_set()
    assert ready(repository) == []
    assert "close" in calls(ensemble)


async def test_with_an_ensemble_go_the_models_that_only_it_needs(folder: Path, loader: Loader) -> None:
    for name in ("a", "b", "c"):
        write(folder, name)
    write(folder, "e", "a", "b", "c")
    write(folder, "other", "b")
    repository = explicit(folder, loader)
    await repository.load("c", None, {})
    await repository.load("e", None, {})
    await repository.load("other", None, {})
    await repository.unload("e", unload_dependents=True)
    assert ready(repository) == ["b", "c", "other"]


async def test_an_ensemble_comes_back_with_its_model(folder: Path, loader: Loader) -> None:
    write(folder, "a")
    write(folder, "e", "a")
    repository = explicit(folder, loader)
    await repository.load("e", None, {})
    await repository.unload("a", unload_dependents=False)
    await repository.load("a", None, {})
    assert ready(repository) == ["a", "e"]
    await repository.unload("e", unload_dependents=False)
    await repository.unload("a", unload_dependents=False)
    await repository.load("a", None, {})
    assert ready(repository) == ["a"]


async def test_a_model_that_does_not_fit_any_more_ends_the_ensemble(folder: Path, loader: Loader) -> None:
    write(folder, "a")
    write(folder, "e", "a")
    repository = explicit(folder, loader)
    await repository.load("e", None, {})
    write(folder, "a", config=_BACKEND + _IO.replace("TYPE_INT32 dims: 1 } output", "TYPE_INT64 dims: 1 } output"))
    await repository.load("a", None, {})
    assert ready(repository) == ["a"]
    await asyncio.gather(*repository._retiring)
    states = {row.name: (row.state, row.reason) for row in repository.index()}
    assert states["e"] == (ModelState.UNAVAILABLE, "unloaded")


async def test_a_failed_reload_of_a_model_leaves_the_ensemble(folder: Path, loader: Loader) -> None:
    write(folder, "a")
    write(folder, "e", "a")
    repository = explicit(folder, loader)
    await repository.load("e", None, {})
    loader.failing["a"] = "it is broken"
    write(folder, "a")
    with pytest.raises(InferenceError, match="it is broken"):
        await repository.load("a", None, {})
    assert ready(repository) == ["a", "e"]


async def test_a_circle_is_refused_and_ends(folder: Path, loader: Loader) -> None:
    write(folder, "d", "f")
    write(folder, "f", "d")
    repository = explicit(folder, loader)
    with pytest.raises(InferenceError) as caught:
        await repository.load("d", None, {})
    assert caught.value.message == (
        "load failed for model 'd': circular dependency between ensembles: d -> ... -> f -> d\n"
    )
    assert loader.orders == []


async def test_loads_of_models_of_one_ensemble_do_not_wait_for_each_other_for_ever(
    folder: Path, loader: Loader
) -> None:
    for name in ("a", "b"):
        write(folder, name)
    write(folder, "e", "a", "b")
    repository = explicit(folder, loader)
    await repository.load("e", None, {})
    write(folder, "a")
    write(folder, "b")
    both = [repository.load(name, None, {}) for name in ("b", "a", "e", "a")]
    await asyncio.wait_for(asyncio.gather(*both, repository.unload("e", True)), 20)
    assert set(ready(repository)) <= {"a", "b", "e"}


async def test_a_step_means_the_model_of_its_own_repository(tmp_path: Path, loader: Loader) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, "a")
    write(two, "a")
    write(two, "b")
    write(one, "e", "a", "b")
    repository = ModelRepository([one, two], loader, mode=ControlMode.NONE, namespacing=True)
    assert await repository.start() == []
    steps = loader.orders[-1].config.ensemble_scheduling.step
    assert [step.model_namespace for step in steps] == [str(one), str(two)]
    assert repository.resolve(f"{one}::a", "", None).namespace == str(one)
