"""Workers that die, hang, leak or talk nonsense, and what they print."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from serving_node.backends.python.instance import PythonInstance
from serving_node.backends.python.processes import _remove_left_behind
from serving_node.core.errors import InferenceError
from serving_node.scheduling.served_model import ServedModel

from .conftest import Asked, Models

ECHO = """
def execute(self, requests):
    array = requests[0].inputs()[0].as_numpy()
    if array.flat[0] < 0:
        os._exit(3)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.inputs()[0].as_numpy())]) for one in requests]
"""
UNHEALTHY = "Stub process 'm_0' is not healthy."


def instance_of(model: ServedModel) -> PythonInstance:
    (runner,) = model.scheduler._instances  # type: ignore[attr-defined]
    instance = runner.instance
    assert isinstance(instance, PythonInstance)
    return instance


def pid_of(model: ServedModel) -> int:
    worker = instance_of(model)._worker
    assert worker is not None
    return worker.link.process.pid


async def test_the_batch_of_a_process_that_dies_fails_and_the_next_one_runs(
    models: Models, until: Callable[..., Any]
) -> None:
    model = await models.load(ECHO)
    assert (await models.ask(model, [1]).array()).tolist() == [1]
    before = pid_of(model)
    dies, waits = models.ask(model, [-1]), models.ask(model, [2])
    assert await dies.error() == UNHEALTHY
    assert not model.ready()
    assert (await waits.array()).tolist() == [2]
    assert model.ready() and pid_of(model) != before
    await until(lambda: not Path(f"/proc/{before}").exists())


async def test_a_death_between_requests_is_noticed_at_once(models: Models, until: Callable[..., Any]) -> None:
    model = await models.load(ECHO)
    before = pid_of(model)
    os.kill(before, signal.SIGKILL)
    await until(lambda: not model.ready())
    await until(model.ready)
    assert (await models.ask(model, [2]).array()).tolist() == [2]


async def test_killed_under_load_everybody_is_answered_and_nothing_leaks(models: Models) -> None:
    model = await models.load(ECHO)
    big = np.ones(60_000, np.float32)
    asked: list[Asked] = []
    for round_ in range(4):
        asked += [models.ask(model, big if number % 3 else [1]) for number in range(30)]
        await asked[-30 + round_].answer()
        if worker := instance_of(model)._worker:
            os.kill(worker.link.process.pid, signal.SIGKILL)
    outcomes = [await one.answer() for one in asked]
    failures = [outcome.error.message for outcome in outcomes if outcome.error]
    assert set(failures) <= {UNHEALTHY} and len(failures) <= 8
    assert all(len(one.responses) == 1 for one in asked)
    assert (await models.ask(model, [2]).array()).tolist() == [2]


async def test_blocks_and_files_return_to_where_they_were(models: Models) -> None:
    model = await models.load(ECHO)
    worker = instance_of(model)._worker
    assert worker is not None
    array = np.ones(200_000, np.float32)

    async def held_after_rounds() -> tuple[list[int], list[int]]:
        for count in range(12):
            await asyncio.gather(*(models.ask(model, array[: 50_000 * (1 + count % 4)]).array() for _ in range(4)))
        gc.collect()
        await models.ask(model, [1]).array()
        pids = (os.getpid(), worker.link.process.pid)
        files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
        return files, [Path(f"/proc/{pid}/maps").read_text().count("memfd:flotilla ") for pid in pids]

    # What was unused is kept for the next time, more of it where more requests met than before; so it grows until as
    # many met as can, and then no more.
    before, rounds = await held_after_rounds(), 1
    while (now := await held_after_rounds()) != before:
        before, rounds = now, rounds + 1
        assert rounds < 12, (before, now)
    assert worker.link.blocks_in_use == (0, 0)


async def test_a_response_keeps_its_memory_until_nobody_looks(models: Models) -> None:
    model = await models.load(ECHO)
    kept = [await models.ask(model, np.full(50_000, number)).answer() for number in range(5)]
    assert [response.outputs[0].as_numpy()[-1] for response in kept] == [0, 1, 2, 3, 4]
    worker = instance_of(model)._worker
    assert worker is not None and worker.link.blocks_in_use[1] == 5


async def test_views_outlive_the_process(models: Models) -> None:
    model = await models.load(ECHO)
    response = await models.ask(model, np.full(50_000, 7)).answer()
    await model.close(5)
    gc.collect()
    assert (response.outputs[0].as_numpy() == 7).all()


async def test_a_model_that_cannot_be_started_again_answers_at_once(models: Models, until: Callable[..., Any]) -> None:
    body = ECHO + "\ndef initialize(self, args):\n    assert not os.path.exists(args['model_repository'] + '/broken')\n"
    model = await models.load(body)
    (models.folder / "m" / "broken").write_text("")
    assert await models.ask(model, [-1]).error() == UNHEALTHY
    await until(lambda: instance_of(model).gone() is not None)
    assert not model.ready()
    with pytest.raises(InferenceError, match="is not healthy"):
        models.ask(model, [1])
    (models.folder / "m" / "broken").unlink()
    await until(model.ready)
    assert (await models.ask(model, [1]).array()).tolist() == [1]


async def test_a_worker_that_talks_nonsense_is_replaced(models: Models, until: Callable[..., Any]) -> None:
    body = """
    def execute(self, requests):
        value = requests[0].inputs()[0].as_numpy()[0]
        if value:
            import gc, socket
            (channel,) = [one for one in gc.get_objects() if type(one).__name__ == "Channel"]
            channel.data.send([b"", b"x", b"\\xff" * 40, b"\\x08\\0\\0\\0\\x11\\0\\0\\0[[7],[],"][int(value)])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", requests[0].inputs()[0].as_numpy())])]
    """
    model = await models.load(body)
    for value in (1, 2, 3):
        assert await models.ask(model, [value]).error() == UNHEALTHY
        await until(model.ready)
        assert (await models.ask(model, [0]).array()).tolist() == [0]


async def test_children_of_a_model_end_with_it(models: Models, until: Callable[..., Any]) -> None:
    body = """
    def initialize(self, args):
        import subprocess
        child = subprocess.Popen(["sleep", "100"])
        open(args["model_repository"] + "/child", "w").write(str(child.pid))
    """
    model = await models.load(body + "\n" + ECHO.replace("\n", "\n    "))
    child = (models.folder / "m" / "child").read_text()
    assert Path(f"/proc/{child}").exists()
    await model.close(5)
    await until(
        lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
    )


async def test_readiness_is_what_the_model_says(models: Models, until: Callable[..., Any]) -> None:
    body = """
    def initialize(self, args):
        self.file = args["model_repository"] + "/says"

    def is_ready(self):
        with open(self.file) as file:
            return {"yes": True, "no": False, "odd": 7}[file.read()]
    """
    (models.folder / "m").mkdir()
    says = models.folder / "m" / "says"
    says.write_text("yes")
    model = await models.load(body + "\n" + ECHO.replace("\n", "\n    "))
    assert model.ready()
    for text in ("no", "yes", "odd"):
        says.write_text(text)
        await until(lambda text=text: model.ready() == (text == "yes"))
    assert (await models.ask(model, [1]).array()).tolist() == [1]
    says.unlink()
    await asyncio.sleep(0)
    assert not model.ready()


async def test_what_a_model_prints_and_logs_reaches_the_log(models: Models, until: Callable[..., Any]) -> None:
    body = """
    def execute(self, requests):
        print("printed line")
        print("x" * 100_000, file=sys.stderr, flush=True)
        pb_utils.Logger.log_warn("a warning")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))])]
    """
    with capture_logs() as lines:
        model = await models.load(body)
        await models.ask(model, [0]).answer()
        await until(lambda: any("xxx" in str(line.get("text")) for line in lines))
    assert any(line.get("text") == "printed line" for line in lines)
    assert max(len(str(line.get("text"))) for line in lines) <= 8192
    (warning,) = [line for line in lines if line.get("text") == "a warning"]
    assert warning["log_level"] == "warning" and "model.py:" in warning["at"]


def test_folders_of_nodes_that_were_killed_are_removed(tmp_path: Path) -> None:
    gone, alive, other = (
        tmp_path / name
        for name in ("flotilla-worker-4194305-a", f"flotilla-worker-{os.getpid()}-b", "flotilla-worker-x")
    )
    for folder in (gone, alive, other):
        (folder / "inside").mkdir(parents=True)
    _remove_left_behind(tmp_path)
    assert not gone.exists() and alive.exists() and other.exists()


async def test_several_instances_share_the_work_and_fail_together(models: Models) -> None:
    body = """
    def initialize(self, args):
        self.name = args["model_instance_name"].encode()

    def execute(self, requests):
        time.sleep(0.05)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.name], dtype=object))])]
    """
    group = "instance_group [ { kind: KIND_CPU count: 3 } ]"
    model = await models.load(body, group, datatype="TYPE_STRING")
    answers = await asyncio.gather(*(models.ask(model, [b""], dtype="BYTES").array() for _ in range(9)))
    assert {answer[0] for answer in answers} == {b"m_0_0", b"m_0_1", b"m_0_2"}
    body = """
    def initialize(self, args):
        open(args["model_repository"] + "/" + str(os.getpid()), "w").close()
        assert args["model_instance_name"] != "n_0_1"
    """
    with pytest.raises(InferenceError, match="AssertionError"):
        await models.load(body, group, name="n")
    pids = [path.name for path in (models.folder / "n").iterdir() if path.name.isdecimal() and path.name != "1"]
    assert len(pids) == 3 and not any(Path("/proc", pid).exists() for pid in pids)


_NODE = """
import sys, time
from pathlib import Path
from serving_node.backends.python.backend import backend
from serving_node.contract.model_config import normalise, parse_pbtxt
from serving_node.core.backend import Device, ModelSource
from serving_node.core.inner_calls import InnerCalls

config = normalise(parse_pbtxt('name: "m" backend: "python"'), gpu_count=0)
model = backend({}, InnerCalls()).open_model(ModelSource("m", 1, Path(sys.argv[1]), config))
print(model.create_instance(Device(), config, "m_0")._worker.link.process.pid, flush=True)
time.sleep(100)
"""


async def test_workers_end_with_a_node_that_is_killed(models: Models, until: Callable[..., Any]) -> None:
    version = models.write("def initialize(self, args): threading.Thread(target=time.sleep, args=(90,)).start()")
    node = await asyncio.create_subprocess_exec(sys.executable, "-c", _NODE, str(version), stdout=subprocess.PIPE)
    assert node.stdout is not None
    pid = (await asyncio.wait_for(node.stdout.readline(), 20)).decode().strip()
    assert Path("/proc", pid).exists()
    node.kill()
    await node.wait()
    await until(lambda: not Path("/proc", pid).exists() or Path("/proc", pid, "stat").read_text().split()[2] == "Z")


async def test_signals_to_the_worker_are_ignored_but_end_what_a_model_starts(models: Models) -> None:
    body = """
    def initialize(self, args):
        import signal, subprocess
        self.helper = subprocess.Popen(["sleep", "100"])
        os.kill(os.getpid(), signal.SIGTERM)

    def execute(self, requests):
        self.helper.terminate()
        status = np.array([self.helper.wait(30)], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", status)]) for _ in requests]
    """
    model = await models.load(body)
    assert (await models.ask(model, [1]).array()).tolist() == [-signal.SIGTERM]
