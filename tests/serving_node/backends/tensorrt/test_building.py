"""Engines built from ONNX: what is planned, how progress is counted, and the task with its process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import onnx
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from serving_node.backends.tensorrt.building.planning import NetworkInput, complete_profiles
from serving_node.backends.tensorrt.building.progress import BuildProgress
from serving_node.contract.control import FileRef
from serving_node.contract.engine_builds import (
    BuildOrder,
    BuildPlan,
    BuildProfile,
    BuildState,
    BuildStatus,
    InputBounds,
    check_plan,
    plan_for,
)
from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.observability.host import GpuReading
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.engine_builds import EngineBuilds, build_key
from tests.serving_node import onnx_models
from tests.serving_node.backends.tensorrt import fake_tensorrt

SECONDS = 60
FIXED = NetworkInput("f", (1, 3))
ROWS = NetworkInput("x", (-1, 16))
WIDE = NetworkInput("w", (-1, -1))
SHAPE = NetworkInput("s", (2,), is_shape=True)
GPU = GpuReading("GPU-1", "NVIDIA H100", None, None, None, None, None, None)


def test_rows_become_batches_and_fixed_inputs_need_nothing() -> None:
    assert complete_profiles([FIXED], BuildPlan()) == ()
    (profile,) = complete_profiles([FIXED, ROWS], BuildPlan(max_batch_size=8, best_batch_size=4))
    assert profile.inputs == (InputBounds("x", (1, 16), (4, 16), (8, 16)),)


@pytest.mark.parametrize(
    ("inputs", "plan", "text"),
    [
        (
            [ROWS],
            BuildPlan(),
            "input 'x' has the dynamic shape [-1, 16]: the plan must say the least, best and largest",
        ),
        ([WIDE], BuildPlan(max_batch_size=4), "input 'w' has the dynamic shape [-1, -1]: the plan must say"),
        ([SHAPE], BuildPlan(max_batch_size=4), "input 's' is a shape tensor: the plan must say the least, best and"),
        (
            [ROWS],
            BuildPlan(profiles=(BuildProfile((InputBounds("q", (1,), (1,), (1,)),)),)),
            "the file has no input 'q', only x",
        ),
        (
            [ROWS],
            BuildPlan(profiles=(BuildProfile((InputBounds("x", (1, 8), (1, 8), (1, 8)),)),)),
            "the shape [1, 8] does not fit input 'x', which has [-1, 16]",
        ),
        (
            [ROWS, WIDE],
            BuildPlan(profiles=(BuildProfile((InputBounds("x", (1, 16), (1, 16), (1, 16)),)),)),
            "input 'w' has the dynamic shape",
        ),
    ],
)
def test_plans_that_do_not_fit_the_file_are_told_in_one_sentence(
    inputs: list[NetworkInput], plan: BuildPlan, text: str
) -> None:
    with pytest.raises(InferenceError) as caught:
        complete_profiles(inputs, plan)
    assert caught.value.message.startswith(text)


@pytest.mark.parametrize(
    "plan",
    [
        BuildPlan(max_batch_size=-1),
        BuildPlan(max_batch_size=2, best_batch_size=3),
        BuildPlan(optimization_level=6),
        BuildPlan(profiles=(BuildProfile((InputBounds("x", (2,), (1,), (3,)),)),)),
        BuildPlan(profiles=(BuildProfile((InputBounds("x", (1,), (1, 1), (3,)),)),)),
    ],
)
def test_plans_that_no_engine_can_have_are_refused(plan: BuildPlan) -> None:
    with pytest.raises(ContractError):
        check_plan(plan)


def test_a_plan_follows_from_a_config() -> None:
    assert plan_for(parse_pbtxt("")) == BuildPlan()
    config = parse_pbtxt("max_batch_size: 16 dynamic_batching { preferred_batch_size: [ 4, 8 ] }")
    assert plan_for(config) == BuildPlan(max_batch_size=16, best_batch_size=8)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["start", "step", "finish"]), st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)
        ),
        max_size=40,
    )
)
def test_progress_never_falls_whatever_tensorrt_tells(events: list[tuple[str, int, int, int]]) -> None:
    progress, before = BuildProgress(), 0.0
    for kind, name, parent, number in events:
        if kind == "start":
            progress.start(f"p{name}", f"p{parent}" if parent < name else "", number)
        elif kind == "step":
            progress.step(f"p{name}", number)
        else:
            progress.finish(f"p{name}")
        assert before <= progress.fraction <= 1
        before = progress.fraction


def test_phases_within_phases_count_as_parts_of_a_step() -> None:
    progress = BuildProgress()
    progress.start("all", "", 2)
    progress.step("all", 0)
    progress.start("inner", "all", 4)
    progress.step("inner", 1)
    assert (progress.fraction, progress.phase) == (0.75, "inner")
    progress.finish("inner")
    progress.step("all", 1)
    progress.finish("all")
    assert progress.fraction == 1


@pytest.fixture
async def builds(tmp_path: Path) -> AsyncIterator[EngineBuilds]:
    blobs = BlobStore(tmp_path / "blobs")
    worker = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]
    made = EngineBuilds(tmp_path / "engines", blobs, lambda: [GPU], worker=worker, version=lambda: "11.4.0.106")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[4])
    yield made
    del os.environ["PYTHONPATH"]
    await made.close()
    assert not [child for child in psutil.Process().children() if "fake_worker" in " ".join(child.cmdline())]
    assert not list((tmp_path / "engines" / "work").glob("*"))


@pytest.fixture
def stored(tmp_path: Path, builds: EngineBuilds) -> Callable[[Path], FileRef]:
    """Make a file a blob of the node."""

    def stored(path: Path) -> FileRef:
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        builds._blobs.partial_path(sha256).write_bytes(content)
        builds._blobs.commit(sha256, len(content))
        return FileRef("model.onnx", sha256, len(content))

    return stored


def special(path: Path, name: str) -> Path:
    model = onnx.load(onnx_models.save_mlp(path))
    model.graph.name = name
    path.write_bytes(model.SerializeToString())
    return path


async def ended(builds: EngineBuilds, status: BuildStatus) -> BuildStatus:
    async with asyncio.timeout(SECONDS):
        while not status.state.is_final:
            status = await builds.status(status.id, status.sequence, 30)
    return status


async def test_an_engine_is_built_once_and_becomes_a_blob(
    builds: EngineBuilds, stored: Callable[[Path], FileRef], tmp_path: Path
) -> None:
    order = BuildOrder((stored(onnx_models.save_mlp(tmp_path / "m.onnx")),), BuildPlan(max_batch_size=8))
    first = await builds.start(order)
    assert first.state is BuildState.WAITING
    assert (await builds.start(order)).id == first.id  # the same build
    seen: list[BuildStatus] = [first]
    async with asyncio.timeout(SECONDS):
        while not seen[-1].state.is_final:
            seen.append(await builds.status(first.id, seen[-1].sequence, 30))
    done = seen[-1]
    assert done.state is BuildState.READY, done.reason
    assert [one.progress for one in seen] == sorted(one.progress for one in seen)
    assert (done.gpu_name, done.tensorrt_version, done.was_cached) == ("NVIDIA H100", "11.4.0.106", False)
    assert done.engine is not None
    plan = builds._blobs.path(done.engine.sha256).read_bytes()
    engine = fake_tensorrt.Runtime(fake_tensorrt.ILogger()).deserialize_cuda_engine(plan)
    assert engine is not None
    assert engine.profiles == [{"x": [[1, 16], [8, 16], [8, 16]]}]
    again = await builds.start(order)
    assert (again.state, again.was_cached, again.engine) == (BuildState.READY, True, done.engine)
    assert again.id != first.id
    # an engine that was evicted is built again
    builds._blobs.delete(done.engine.sha256)
    assert (await ended(builds, await builds.start(order))).was_cached is False
    assert b"timed" in next((tmp_path / "engines").glob("timing-*.cache")).read_bytes()


async def test_files_beside_the_graph_come_along(
    builds: EngineBuilds, stored: Callable[[Path], FileRef], tmp_path: Path
) -> None:
    model = onnx.load(onnx_models.save_mlp(tmp_path / "m.onnx"))
    onnx.save_model(model, tmp_path / "e.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    graph, weights = stored(tmp_path / "e.onnx"), stored(tmp_path / "weights.bin")
    files = (graph, FileRef("weights.bin", weights.sha256, weights.size))
    done = await ended(builds, await builds.start(BuildOrder(files, BuildPlan(max_batch_size=2))))
    assert done.state is BuildState.READY, done.reason


async def test_a_build_is_cancelled_at_its_next_step(
    builds: EngineBuilds, stored: Callable[[Path], FileRef], tmp_path: Path
) -> None:
    order = BuildOrder((stored(special(tmp_path / "m.onnx", "hangs")),), BuildPlan(max_batch_size=8))
    status = await builds.start(order)
    waiting = await builds.start(BuildOrder(order.files, BuildPlan(max_batch_size=4)))
    async with asyncio.timeout(SECONDS):
        while not status.progress:
            status = await builds.status(status.id, status.sequence, 30)
    assert (await builds.status(waiting.id)).state is BuildState.WAITING  # one at a time
    assert (await builds.cancel(waiting.id)).state is BuildState.CANCELLED
    cancelled = await builds.cancel(status.id)
    assert (cancelled.state, cancelled.reason) == (BuildState.CANCELLED, "the build was cancelled")
    assert (await builds.cancel(status.id)) == cancelled


async def test_a_build_ends_at_its_deadline(
    builds: EngineBuilds, stored: Callable[[Path], FileRef], tmp_path: Path
) -> None:
    files = (stored(special(tmp_path / "m.onnx", "hangs")),)
    status = await ended(builds, await builds.start(BuildOrder(files, BuildPlan(max_batch_size=8), 0, 0.2)))
    assert (status.state, status.reason) == (BuildState.FAILED, "the engine was not built within 0.2 s")


async def test_a_crash_of_tensorrt_fails_the_build_alone(
    builds: EngineBuilds, stored: Callable[[Path], FileRef], tmp_path: Path
) -> None:
    files = (stored(special(tmp_path / "m.onnx", "crashes")),)
    status = await ended(builds, await builds.start(BuildOrder(files, BuildPlan(max_batch_size=8))))
    assert status.state is BuildState.FAILED
    assert status.reason == "the process that built the engine was ended by SIGSEGV"


_NODE = """
import asyncio, sys
from pathlib import Path
import psutil
from serving_node.contract.control import FileRef
from serving_node.contract.engine_builds import BuildOrder, BuildPlan
from serving_node.observability.host import GpuReading
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.engine_builds import EngineBuilds

async def main(folder, worker, sha256, size):
    gpu = GpuReading("GPU-1", "G", None, None, None, None, None, None)
    worker = [sys.executable, worker]
    builds = EngineBuilds(folder / "e2", BlobStore(folder / "blobs"), lambda: [gpu], worker=worker, version=lambda: "1")
    order = BuildOrder((FileRef("model.onnx", sha256, int(size)),), BuildPlan(max_batch_size=1))
    status = await builds.start(order)
    while not status.progress:
        status = await builds.status(status.id, status.sequence, 30)
    [child] = psutil.Process().children()
    print(child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""


async def test_no_worker_outlives_a_node_that_is_killed(
    builds: EngineBuilds, stored: Callable[[Path], FileRef], tmp_path: Path
) -> None:
    file = stored(special(tmp_path / "m.onnx", "hangs"))
    worker = str(Path(__file__).with_name("fake_worker.py"))
    arguments = [sys.executable, "-c", _NODE, str(tmp_path), worker, file.sha256, str(file.size)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        child = psutil.Process(int(node.stdout.readline()))
        node.kill()
    child.wait(SECONDS)


async def test_reasons_of_tensorrt_are_told(
    builds: EngineBuilds, stored: Callable[[Path], FileRef], tmp_path: Path
) -> None:
    float_ = TensorProto.FLOAT
    odd = onnx_models.save(
        tmp_path / "odd.onnx",
        [helper.make_node("Unheard", ["x"], ["y"])],
        [onnx_models.tensor("x", float_, ["N", 1])],
        [onnx_models.tensor("y", float_, ["N", 1])],
    )
    (tmp_path / "bad.onnx").write_bytes(b"\xff not ONNX")
    good = onnx_models.save_mlp(tmp_path / "m.onnx")
    runtime = "TensorRT 11.4.0.106 cannot read 'model.onnx'"
    for path, plan, reason in (
        (odd, BuildPlan(max_batch_size=1), f"{runtime}: No importer registered for op: Unheard"),
        (tmp_path / "bad.onnx", BuildPlan(max_batch_size=1), f"{runtime}: Failed to parse the ONNX model"),
        (
            good,
            BuildPlan(),
            "input 'x' has the dynamic shape [-1, 16]: the plan must say the least, best and largest of its shape",
        ),
    ):
        status = await ended(builds, await builds.start(BuildOrder((stored(path),), plan)))
        assert (status.state, status.reason) == (BuildState.FAILED, reason)


async def test_orders_that_cannot_be_carried_out_are_refused_at_once(builds: EngineBuilds, tmp_path: Path) -> None:
    file = FileRef("model.onnx", "a" * 64, 1)
    for order, error, text in (
        (BuildOrder(()), ContractError, "an engine is built from an ONNX file, and none is given"),
        (BuildOrder((file,), gpu=1), InferenceError, "this node builds no engines on GPU 1: it has 1 GPUs"),
        (BuildOrder((file,)), InferenceError, f"blob {'a' * 64} is not on this node: deploy the version to it first"),
        (BuildOrder((file,), deadline_seconds=0), ContractError, "the deadline must be between 0 and 86400 seconds"),
    ):
        with pytest.raises(error) as caught:
            await builds.start(order)
        assert caught.value.message == text
    assert builds.list() == []


async def test_a_node_without_tensorrt_answers_in_one_sentence(tmp_path: Path) -> None:
    builds = EngineBuilds(tmp_path / "engines", BlobStore(tmp_path / "blobs"), lambda: [GPU], version=lambda: None)
    with pytest.raises(InferenceError) as caught:
        await builds.start(BuildOrder((FileRef("model.onnx", "a" * 64, 1),)))
    assert caught.value.code is ErrorCode.UNSUPPORTED
    assert caught.value.message == "this node builds no engines: TensorRT is not installed on it"


def test_the_key_names_everything_that_an_engine_depends_on() -> None:
    file = FileRef("model.onnx", "a" * 64, 1)
    order = BuildOrder((file,), BuildPlan(max_batch_size=1))
    other: list[tuple[Any, ...]] = [
        (BuildOrder((FileRef("model.onnx", "b" * 64, 1),), order.plan), "11.4", "H100"),
        (BuildOrder((file,), BuildPlan(max_batch_size=2)), "11.4", "H100"),
        (order, "11.5", "H100"),
        (order, "11.4", "H200"),
    ]
    keys = {build_key(order, "11.4", "H100"), *(build_key(*one) for one in other)}
    assert len(keys) == 5
    patient = BuildOrder((file,), order.plan, deadline_seconds=7)
    assert build_key(patient, "11.4", "H100") == build_key(order, "11.4", "H100")


def test_messages_travel_as_json() -> None:
    profile = BuildProfile((InputBounds("x", (1,), (2,), (3,), of_values=True),))
    order = BuildOrder((FileRef("model.onnx", "a" * 64, 1),), BuildPlan(profiles=(profile,)))
    assert BuildOrder.from_json(json.loads(json.dumps(order.to_json()))) == order
    status = BuildStatus("i", "k", BuildState.READY, 3, engine=FileRef("model.plan", "a" * 64, 1))
    assert BuildStatus.from_json(json.loads(json.dumps(status.to_json()))) == status
