"""Any order of changes, loads and unloads: what serves is whole and open, what does not is closed once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import ModelConfig
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.repository.repository import ControlMode, ModelRepository
from serving_node.scheduling.served_model import ServedModel

from .served import FakeLoader, calls

CONFIG = 'backend: "identity" version_policy {{ all {{}} }} instance_group {{ count: {count} }} max_batch_size: {size}'
names = st.sampled_from("ab")
operations = st.one_of(
    st.tuples(st.just("version"), names, st.integers(1, 3)),
    st.tuples(st.just("no version"), names, st.integers(1, 3)),
    st.tuples(st.just("config"), names, st.integers(1, 2), st.integers(0, 1)),
    st.tuples(st.just("broken config"), names),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("fail"), st.sets(st.integers(1, 3))),
    st.tuples(st.just("load"), names),
    st.tuples(st.just("override"), names),
    st.tuples(st.just("upload"), names),
    st.tuples(st.just("unload"), names),
    st.tuples(st.just("look"), st.none()),
)


class World:
    """A repository on disk, and what was done to it."""

    def __init__(self, folder: Path, mode: ControlMode) -> None:
        self.folder = folder
        self.loader = FakeLoader()
        self.repository = ModelRepository([folder], self.loader, mode=mode)
        self.clock = 4 * 10**18

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.clock += 10**9
        os.utime(path, ns=(self.clock, self.clock))

    def let_resize(self) -> None:
        """Let every second model change its instances in place; the others refuse."""

        async def agree(config: ModelConfig) -> None:
            await asyncio.sleep(0)

        async def refuse(config: ModelConfig) -> None:
            raise InferenceError(ErrorCode.INTERNAL, "no room")

        for number, one in enumerate(self.loader.loaded):
            one.resize = refuse if number % 2 else agree

    async def do(self, operation: tuple[Any, ...]) -> None:
        self.let_resize()
        match operation:
            case "version", name, version:
                self.write(self.folder / name / str(version) / "model", "x")
            case "no version", name, version:
                shutil.rmtree(self.folder / name / str(version), ignore_errors=True)
            case "config", name, count, size:
                self.write(self.folder / name / "config.pbtxt", CONFIG.format(count=count, size=size))
            case "broken config", name:
                self.write(self.folder / name / "config.pbtxt", "nonsense {")
            case "remove", name:
                shutil.rmtree(self.folder / name, ignore_errors=True)
            case "fail", versions:
                self.loader.failing = {str(version): "told to" for version in versions}
            case "look", _:
                await self.repository.poll()
            case action, name:
                with contextlib.suppress(InferenceError):
                    await self.change(action, name)

    async def change(self, action: str, name: str) -> None:
        before = self.served(name)
        try:
            if action == "unload":
                await self.repository.unload(name, False)
                assert self.served(name) == []
            elif action == "load":
                await self.repository.load(name, None, {})
            else:
                files = {"9/model": b"x"} if action == "upload" else {}
                await self.repository.load(name, '{"backend": "identity"}', files)
        except InferenceError:
            assert self.served(name) == before, "a failure changes nothing that serves"
            raise

    def served(self, name: str) -> list[ServedModel]:
        return [one for one in self.repository.models() if one.name == name]

    def check(self) -> None:
        for served in self.repository.models():
            assert calls(served) == [], "what serves is open"
            assert self.repository.table.states(served.name)[served.version] == (ModelState.READY, "")
        for name in "ab":
            ready = [v for v, (s, _) in self.repository.table.states(name).items() if s is ModelState.READY]
            assert sorted(ready) == sorted(one.version for one in self.served(name))
        self.repository.index()


async def play(folder: Path, mode: ControlMode, steps: list[tuple[Any, ...]]) -> None:
    world = World(folder, mode)
    await world.repository.start()
    for step in steps:
        await world.do(step)
        world.check()
    serving = list(world.repository.models())
    while world.repository._retiring:
        await asyncio.sleep(0)
    states = [state for name in "ab" for state, _ in world.repository.table.states(name).values()]
    assert not {ModelState.LOADING, ModelState.UNLOADING} & set(states), "nothing is left half done"
    await world.repository.close(5.0)
    for one in world.loader.loaded:
        assert calls(one) == (["close"] if one in serving else ["drain", "close"]), "closed once"
    uploads = {order.directory for order in world.loader.orders if not order.directory.is_relative_to(folder)}
    assert not any(path.exists() for path in uploads), "uploads are gone"
    assert len(world.repository._locks) == 0


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([ControlMode.EXPLICIT, ControlMode.POLL]), st.lists(operations, max_size=25))
def test_any_order_of_changes(mode: ControlMode, steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder), mode, steps))
