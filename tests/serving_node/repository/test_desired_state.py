"""The shell around the planner: real disk, real blob server, no engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from serving_node.contract.control import Desired, DesiredModel, Drain, FileRef, Observed, ObservedUnit, Route, Unit
from serving_node.contract.digests import config_digest, manifest_digest
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_json
from serving_node.contract.states import UnitState
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.dataplane import DataPlane
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.desired_rules import DesiredConflictError
from serving_node.repository.desired_state import DesiredState
from serving_node.repository.fetcher import BlobFetcher, FetchPolicy
from serving_node.repository.loading import LoadOrder
from serving_node.repository.unit_steps import UnitSteps
from serving_node.scheduling.ensemble_loader import load_ensemble
from serving_node.scheduling.served_model import ServedModel

from .conftest import BlobServer
from .served import FakeLoader, FakeScheduler, calls, request

POLICY = FetchPolicy(attempts=1, backoff_seconds=0.01, stall_timeout_seconds=5)
CONFIG = {"name": "m", "backend": "onnxruntime", "max_batch_size": 8}
Boot = Callable[[], DesiredState]


def make_unit(server: BlobServer, number: int, *, config: dict[str, object] | None = None) -> Unit:
    content = f"weights {number}".encode() * 100
    files = (FileRef("model.onnx", server.add(content), len(content)),)
    chosen = dict(config or CONFIG)
    return Unit(f"u{number}", number, config_digest(parse_json(chosen)), chosen, manifest_digest(files), files)


def desired(generation: int, *units: Unit, weights: tuple[int, ...] = (), drain: Drain | None = None) -> Desired:
    weights = weights or (100,) * len(units)
    routes = tuple(Route(unit.unit, weight) for unit, weight in zip(units, weights, strict=True))
    return Desired(1, generation, (DesiredModel("m", routes, units),) if units else (), drain)


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader()


@pytest.fixture
async def boot(tmp_path: Path, blob_server: BlobServer, loader: FakeLoader) -> AsyncIterator[Boot]:
    """Starts the node's state anew from the same folder, as after a restart of the process."""
    made: list[DesiredState] = []

    def start() -> DesiredState:
        store = BlobStore(tmp_path / "blobs")
        fetcher = BlobFetcher(store, base_url=lambda: blob_server.url, token=lambda: "node-token", policy=POLICY)
        steps = UnitSteps(store, fetcher, tmp_path / "models")
        made.append(
            DesiredState(
                tmp_path,
                steps,
                loader,
                node=lambda: "node-1",
                inventory={"cpu_count": 2},
                build_log=lambda folder: f"built for {folder.parent.name}",
            )
        )
        return made[-1]

    yield start
    for state in made:
        await state.close(5.0)


async def until(state: DesiredState, condition: Callable[[Observed], bool]) -> Observed:
    """Long-poll until the condition holds, as the control plane does."""
    observed = state.observed()
    async with asyncio.timeout(20):
        while not condition(observed):
            observed = await state.wait_observed(observed.sequence, 10)
    return observed


def applied(generation: int) -> Callable[[Observed], bool]:
    return lambda observed: observed.generation_applied == generation


def unit_of(observed: Observed, unit: str) -> ObservedUnit:
    return next(item for item in observed.models if item.unit == unit)


async def test_accept_fetches_loads_routes_and_reports(boot: Boot, blob_server: BlobServer, loader: FakeLoader) -> None:
    state = boot()
    await state.restore()
    unit = make_unit(blob_server, 1)
    answer = await state.accept(desired(1, unit))
    assert (answer.generation_seen, answer.generation_applied) == (1, 0)
    assert answer.desired_digest
    observed = await until(state, applied(1))
    seen = unit_of(observed, "u1")
    assert seen.state is UnitState.READY
    assert seen.bytes_done == seen.bytes_total == unit.files[0].size
    assert (seen.routed_weight, seen.memory_bytes, seen.manifest_digest) == (100, 1000, unit.manifest_digest)
    assert seen.build_log == "built for u1"
    assert state.resolve("m", "", request()).unit == "u1"
    assert state.ready()
    staged = loader.orders[0].directory
    assert (staged / "model.onnx").read_bytes() == blob_server.contents[unit.files[0].sha256]
    assert loader.orders[0].config.backend == "onnxruntime"


IO = [{"name": "I", "data_type": "TYPE_INT32", "dims": [1]}], [{"name": "O", "data_type": "TYPE_INT32", "dims": [1]}]


def ensemble_unit(*names: str) -> Unit:
    """Return an ensemble in which each model follows the one before; it has no files."""
    tensors = ["I", *(f"T{number}" for number in range(1, len(names))), "O"]
    steps = [
        {
            "model_name": name,
            "model_version": -1,
            "input_map": {"I": tensors[place]},
            "output_map": {"O": tensors[place + 1]},
        }
        for place, name in enumerate(names)
    ]
    config = {"platform": "ensemble", "input": IO[0], "output": IO[1], "ensemble_scheduling": {"step": steps}}
    return Unit("u9", 1, config_digest(parse_json(config)), config, manifest_digest(()), ())


class EnsembleLoader(FakeLoader):
    """Loads ensembles as the node does, other models as told. ``door`` leads to the models that are ready."""

    door: InnerCalls

    async def __call__(self, order: LoadOrder) -> ServedModel:
        if not order.config.HasField("ensemble_scheduling"):
            served = await super().__call__(order)
            served.config.CopyFrom(order.config)
            return served
        self.orders.append(order)
        return await load_ensemble(
            order.config,
            self.door,
            name=order.name,
            version=order.version,
            folder=order.directory.parent,
            unit=order.unit,
        )


@pytest.mark.parametrize("loader", [EnsembleLoader()])
async def test_accept_loads_an_ensemble_after_its_models_and_says_which_are_missing(
    boot: Boot, blob_server: BlobServer, loader: EnsembleLoader
) -> None:
    state = boot()
    loader.door = InnerCalls()
    loader.door.open(DataPlane(state, joined=True), asyncio.get_running_loop().call_soon_threadsafe)
    await state.restore()
    part = make_unit(blob_server, 1, config={"name": "m", "backend": "identity", "input": IO[0], "output": IO[1]})
    models = [DesiredModel("e", (Route("u9", 100),), (ensemble_unit("m", "m"),))]
    models.append(DesiredModel("lost", (Route("u9", 100),), (ensemble_unit("m", "nobody"),)))
    models.append(DesiredModel("m", (Route("u1", 100),), (part,)))
    await state.accept(Desired(1, 1, tuple(models)))
    observed = await until(state, applied(1))
    assert loader.orders[0].name == "m"
    reasons = {item.name: item.reason.text if item.reason else "" for item in observed.models}
    assert reasons == {
        "m": "",
        "e": "",
        "lost": "ensemble lost contains models that are not available or ambiguous: nobody",
    }
    assert state.resolve("e", "", None).ready()


async def test_accept_stale_or_rewritten_generation_is_refused(boot: Boot, blob_server: BlobServer) -> None:
    state = boot()
    await state.restore()
    one, two = make_unit(blob_server, 1), make_unit(blob_server, 2)
    await state.accept(desired(5, one))
    await state.accept(desired(5, one))
    for refused in (desired(4, one), desired(5, two)):
        with pytest.raises(DesiredConflictError):
            await state.accept(refused)
    assert (await state.accept(replace(desired(1, two), epoch=2))).generation_seen == 1


async def test_accept_failed_replacement_keeps_its_reason_and_the_old_unit(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader
) -> None:
    state = boot()
    await state.restore()
    await state.accept(desired(1, make_unit(blob_server, 1)))
    await until(state, applied(1))
    loader.failing["u2"] = "opset 99 is not supported"
    bad = make_unit(blob_server, 2)
    await state.accept(desired(2, bad))
    observed = await until(state, applied(2))
    failed = unit_of(observed, "u2")
    assert failed.state is UnitState.FAILED
    assert failed.reason is not None
    assert (failed.reason.code, failed.reason.text) == ("load_failed", "opset 99 is not supported")
    assert unit_of(observed, "u1").routed_weight == 100
    assert state.resolve("m", "", request()).unit == "u1"
    loads = len(loader.orders)
    loader.failing.clear()
    await state.accept(desired(3, bad))
    await until(state, applied(3))
    assert len(loader.orders) == loads + 1, "a new generation tries again"
    assert state.resolve("m", "", request()).unit == "u2"


async def test_accept_code_is_refused_until_it_is_permitted(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader
) -> None:
    state = boot()
    await state.restore()
    code = make_unit(blob_server, 1, config={"name": "m", "backend": "python"})
    await state.accept(desired(1, code))
    failed = unit_of(await until(state, applied(1)), "u1")
    assert failed.state is UnitState.FAILED and failed.reason is not None
    assert (failed.reason.code, failed.reason.text) == ("code_not_permitted", "it is code")
    await state.accept(desired(2, replace(code, code_permitted=True)))
    observed = await until(state, applied(2))
    assert unit_of(observed, "u1").state is UnitState.READY


async def test_accept_code_whose_permission_is_withdrawn_is_unloaded(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader
) -> None:
    state = boot()
    await state.restore()
    code = replace(make_unit(blob_server, 1, config={"name": "m", "backend": "python"}), code_permitted=True)
    await state.accept(desired(1, code))
    await until(state, applied(1))
    await state.accept(desired(2, replace(code, code_permitted=False)))
    failed = unit_of(await until(state, applied(2)), "u1")
    assert failed.state is UnitState.FAILED and failed.reason is not None
    assert failed.reason.code == "code_not_permitted"
    assert calls(loader.loaded[0]) == ["drain", "close"]
    with pytest.raises(InferenceError, match="no available versions"):
        state.resolve("m", "", request())
    # And after a restart, which finds its routes still in force.
    again = boot()
    await again.restore()
    assert unit_of(await until(again, applied(2)), "u1").state is UnitState.FAILED
    await again.accept(desired(3, code))
    assert unit_of(await until(again, applied(3)), "u1").state is UnitState.READY


async def test_accept_withdrawn_code_leaves_its_traffic_to_what_is_data(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader
) -> None:
    state = boot()
    await state.restore()
    data = make_unit(blob_server, 1)
    code = make_unit(blob_server, 2, config={"name": "m", "backend": "python"})
    await state.accept(desired(1, data, replace(code, code_permitted=True)))
    await until(state, applied(1))
    await state.accept(desired(2, data, code))
    observed = await until(state, applied(2))
    assert [unit_of(observed, unit).state for unit in ("u1", "u2")] == [UnitState.READY, UnitState.FAILED]
    assert {state.resolve("m", "", request()).unit for _ in range(50)} == {"u1"}


async def test_accept_replaced_unit_is_drained_closed_and_removed(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader, tmp_path: Path
) -> None:
    state = boot()
    await state.restore()
    await state.accept(desired(1, make_unit(blob_server, 1)))
    await until(state, applied(1))
    await state.accept(desired(2, make_unit(blob_server, 2)))
    observed = await until(state, applied(2))
    assert [item.unit for item in observed.models] == ["u2"]
    assert calls(loader.loaded[0]) == ["drain", "close"]
    assert [path.name for path in (tmp_path / "models" / "m").iterdir()] == ["u2"]


async def test_accept_digest_that_does_not_fit_is_refused_for_good(boot: Boot, blob_server: BlobServer) -> None:
    state = boot()
    await state.restore()
    unit = make_unit(blob_server, 1)
    await state.accept(desired(1, replace(unit, config={**CONFIG, "max_batch_size": 9})))
    observed = await until(state, applied(1))
    reason = unit_of(observed, "u1").reason
    assert reason is not None
    assert reason.code == "digest_mismatch"


async def test_restore_serves_without_the_control_plane(boot: Boot, blob_server: BlobServer, tmp_path: Path) -> None:
    first = boot()
    await first.restore()
    await first.accept(desired(7, make_unit(blob_server, 1)))
    before = await until(first, applied(7))
    await first.close(5.0)
    blob_server.token = "nobody"
    blob_server.requests.clear()
    second = boot()
    await second.restore()
    assert not second.ready(), "not before its model is loaded again"
    after = await until(second, applied(7))
    assert after.sequence > before.sequence
    assert after.desired_digest == before.desired_digest
    assert second.resolve("m", "", request()).unit == "u1"
    assert not blob_server.requests
    for name in ("desired.json", "applied.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


async def test_restore_failed_replacement_still_serves_the_old_unit(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader
) -> None:
    """The old unit is not desired any more; only applied.json knows that it is what serves."""
    first = boot()
    await first.restore()
    await first.accept(desired(1, make_unit(blob_server, 1)))
    await until(first, applied(1))
    loader.failing["u2"] = "broken"
    await first.accept(desired(2, make_unit(blob_server, 2)))
    await until(first, applied(2))
    await first.close(5.0)
    second = boot()
    await second.restore()
    await until(second, applied(2))
    assert second.resolve("m", "", request()).unit == "u1"


async def test_restore_before_routes_were_written_is_not_ready_with_nothing_loaded(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader, tmp_path: Path
) -> None:
    first = boot()
    await first.restore()
    await first.accept(desired(1, make_unit(blob_server, 1)))
    await until(first, applied(1))
    await first.close(5.0)
    (tmp_path / "applied.json").unlink()
    loader.gate = asyncio.Event()
    second = boot()
    await second.restore()
    await until(second, lambda o: bool(o.models) and unit_of(o, "u1").state is UnitState.WARMING)
    assert not second.ready()
    loader.gate.set()
    await until(second, applied(1))
    assert second.ready()


async def test_applied_generation_is_on_disk(boot: Boot, blob_server: BlobServer, tmp_path: Path) -> None:
    state = boot()
    await state.restore()
    await state.accept(desired(1, make_unit(blob_server, 1)))
    await until(state, applied(1))
    assert json.loads((tmp_path / "applied.json").read_text())[0]["routes"][0]["unit"] == "u1"


async def test_restore_unreadable_state_begins_with_nothing(boot: Boot, tmp_path: Path) -> None:
    (tmp_path / "desired.json").write_text('{"epoch": 1, "gener')
    (tmp_path / "applied.json").write_text("[]")
    state = boot()
    await state.restore()
    assert state.observed().generation_seen == 0
    assert (tmp_path / "desired.json.broken").exists()


async def test_fetch_failure_in_passing_is_tried_again(boot: Boot, blob_server: BlobServer) -> None:
    state = boot()
    await state.restore()
    blob_server.statuses = [503]
    await state.accept(desired(1, make_unit(blob_server, 1)))
    failed = unit_of(await until(state, lambda o: unit_of(o, "u1").state is UnitState.FAILED), "u1")
    assert failed.reason is not None
    assert failed.reason.code == "unreachable"
    observed = await until(state, applied(1))
    assert unit_of(observed, "u1").state is UnitState.READY
    assert unit_of(observed, "u1").reason is None


async def test_damaged_blob_on_disk_is_fetched_again(boot: Boot, blob_server: BlobServer, tmp_path: Path) -> None:
    first = boot()
    await first.restore()
    unit = make_unit(blob_server, 1)
    await first.accept(desired(1, unit))
    await until(first, applied(1))
    await first.close(5.0)
    blob = tmp_path / "blobs" / unit.files[0].sha256[:2] / unit.files[0].sha256
    blob.chmod(0o600)
    blob.write_bytes(b"x" * unit.files[0].size)
    second = boot()
    await second.restore()
    observed = await until(second, applied(1))
    assert unit_of(observed, "u1").state is UnitState.READY
    assert blob.read_bytes() == blob_server.contents[unit.files[0].sha256]


async def test_drain_refuses_requests_waits_for_running_ones_and_ends(
    boot: Boot, blob_server: BlobServer, loader: FakeLoader
) -> None:
    state = boot()
    await state.restore()
    unit = make_unit(blob_server, 1)
    await state.accept(desired(1, unit))
    await until(state, applied(1))
    scheduler = loader.loaded[0].scheduler
    assert isinstance(scheduler, FakeScheduler)
    scheduler.inflight = 1
    await state.accept(desired(2, unit, drain=Drain(30.0)))
    observed = state.observed()
    assert observed.draining
    assert observed.generation_applied < 2
    assert unit_of(observed, "u1").routed_weight == 0
    assert not state.ready()
    with pytest.raises(InferenceError) as caught:
        state.resolve("m", "", request())
    assert caught.value.code is ErrorCode.UNAVAILABLE
    scheduler.inflight = 0
    await until(state, applied(2))
    await state.accept(desired(3, unit))
    assert state.resolve("m", "", request()).unit == "u1"


async def test_wait_observed_returns_when_time_is_over(boot: Boot) -> None:
    state = boot()
    await state.restore()
    sequence = state.observed().sequence
    assert (await state.wait_observed(sequence, 0.01)).sequence == sequence
    assert (await state.wait_observed(sequence + 99, 60)).sequence == sequence, (
        "an unknown sequence is answered at once"
    )


async def test_load_and_unload_are_refused(boot: Boot) -> None:
    state = boot()
    for call in (state.load("m", None, {}), state.unload("m", False)):
        with pytest.raises(InferenceError) as caught:
            await call
        assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_observed_is_plain_json(boot: Boot, blob_server: BlobServer) -> None:
    state = boot()
    await state.restore()
    await state.accept(desired(1, make_unit(blob_server, 1)))
    observed = await until(state, applied(1))
    assert Observed.from_json(json.loads(json.dumps(observed.to_json()))) == observed
