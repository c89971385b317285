"""Models in worker processes: the same answers as in threads, and what crosses the boundary."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from serving_node.backends.loader import Backends
from serving_node.backends.python.instance import PythonInstance
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.request import RequestedOutput
from serving_node.scheduling.host_policies import HostPolicies
from serving_node.scheduling.served_model import ServedModel

from .conftest import Asked, Models

PROBE = 'backend: "probe" max_batch_size: 8 dynamic_batching { }'
ROW = np.array([[1, 2]], np.int32)


def parameter(key: str, value: str) -> str:
    return f' parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def ask(models: Models, model: ServedModel, rows: Any = ROW, **more: Any) -> Asked:
    return models.submit(model, rows, "INT32", **more)


async def seen(models: Models, model: ServedModel, **more: Any) -> dict[str, Any]:
    return dict(json.loads((await ask(models, model, **more).array()).flat[0]))


def pids(model: ServedModel) -> list[int]:
    found = []
    for runner in model.scheduler._instances:  # type: ignore[attr-defined]
        assert isinstance(runner.instance, PythonInstance)
        worker = runner.instance._worker
        assert worker is not None
        found.append(worker.link.process.pid)
    return found


def workers() -> set[int]:
    """Return the processes that this one has started and that still run the hosting program."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = (folder / "stat").read_text(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == os.getpid() and b"hosted/stub.py" in command:
            found.add(int(folder.name))
    return found


async def test_answers_come_back_as_they_were_sent(models: Models) -> None:
    model = await models.load()
    for shape in ((1, 3), (7, 5), (8, 60_000), (2, 0)):
        array = np.random.default_rng(1).random(shape, np.float32)
        assert np.array_equal(await models.submit(model, array).array(), array)


@pytest.mark.usefixtures("probe")
async def test_a_request_arrives_whole(models: Models) -> None:
    model = await models.load(PROBE)
    rows = np.arange(6, dtype=np.int32).reshape(3, 2)
    said = await seen(
        models,
        model,
        rows=rows,
        id="r1",
        parameters={"text": "ü", "number": 3, "on": True},
        sequence_id="s",
        sequence_start=True,
        outputs=[RequestedOutput("OUT")],
    )
    assert (said["id"], said["sequence"], said["start"], said["end"]) == ("r1", "s", True, False)
    assert said["parameters"] == {"text": "ü", "number": 3, "on": True}
    assert (said["outputs"], said["rows"], said["input"]) == (["OUT"], 3, rows.tolist())
    assert (said["kind"], said["index"], said["instance"]) == ("CPU", 0, "m_0")
    assert said["directory"] == str(models.folder / "m" / "1")


@pytest.mark.usefixtures("probe")
async def test_the_file_completes_the_config(models: Models) -> None:
    model = await models.load(PROBE)
    assert model.signature is not None and model.signature.inputs[0].shape == (-1, 2)
    assert [(one.name, list(one.dims)) for one in model.config.input] == [("IN", [2])]


@pytest.mark.usefixtures("probe")
async def test_memory_is_that_of_all_processes(models: Models) -> None:
    weights = 50_000_000
    model = await models.load(PROBE + " instance_group [ { count: 3 } ]" + parameter("weights", str(weights)))
    assert 3 * weights < model.memory_bytes < 4 * weights
    estimated = await models.load(PROBE + parameter("shares", "true"))
    assert 12_345 <= estimated.memory_bytes < weights


@pytest.mark.usefixtures("probe")
async def test_a_model_that_describes_itself_does_so_in_its_worker(models: Models) -> None:
    model = await models.load('backend: "probe"' + parameter("described", "yes"))
    assert (model.config.max_batch_size, model.config.output[0].name) == (4, "OUT")
    assert (await seen(models, model))["rows"] == 1


@pytest.mark.usefixtures("probe")
async def test_responses_have_their_parameters(models: Models) -> None:
    model = await models.load(PROBE)
    assert (await ask(models, model).answer()).parameters == {"place": 0, "half": 0.5}


@pytest.mark.usefixtures("probe")
async def test_errors_keep_code_and_text_and_the_worker_goes_on(models: Models) -> None:
    model = await models.load(PROBE)
    before = pids(model)

    async def error(order: str) -> tuple[ErrorCode, str]:
        found = await ask(models, model, parameters={"do": order}).error()
        return found.code, found.message

    assert await error("fail") == (ErrorCode.NOT_FOUND, "only this one")
    assert await error("refuse") == (ErrorCode.UNAVAILABLE, "not today")
    assert await error("raise") == (ErrorCode.INTERNAL, "this went wrong")
    assert await error("forget") == (ErrorCode.INTERNAL, "the backend gave 0 results for 1 requests")
    assert (await seen(models, model))["rows"] == 1
    assert pids(model) == before


@pytest.mark.usefixtures("probe")
async def test_requests_share_batches_and_one_may_fail_alone(models: Models) -> None:
    model = await models.load(PROBE)
    asked = [ask(models, model, parameters={"do": "fail" if number == 1 else ""}) for number in range(3)]
    answers = [await one.answer() for one in asked]
    assert [answer.error is None for answer in answers] == [True, False, True]
    assert json.loads((await asked[2].array()).flat[0])["batch"] == 3


@pytest.mark.usefixtures("probe")
async def test_requests_whose_clients_left_do_not_run(models: Models, tmp_path: Path) -> None:
    model = await models.load('backend: "probe" max_batch_size: 8')
    flag = tmp_path / "go"
    first = ask(models, model, parameters={"do": "wait", "until": str(flag)})
    left = ask(models, model, parameters={"do": "die"})
    left.request.cancel()
    flag.touch()
    await first.answer()
    assert (await left.error()).code is ErrorCode.CANCELLED
    assert (await seen(models, model))["rows"] == 1


@pytest.mark.usefixtures("probe")
async def test_a_worker_sees_no_secrets_and_has_its_own_folder(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("MODEL_TOKEN", "given")
    models.backends = Backends({"probe": {"pass-environment": "MODEL_TOKEN", "level": "3"}})
    model = await models.load(PROBE)
    said = await seen(models, model)
    assert "DATABASE_PASSWORD" not in said["environment"] and said["environment"]["MODEL_TOKEN"] == "given"
    assert said["in_worker"] is True and said["pid"] == pids(model)[0] != os.getpid()
    assert said["options"]["level"] == "3"
    assert Path(said["temporary"]).name.startswith(f"flotilla-worker-{os.getpid()}-")
    assert "probe_backend" not in sys.modules
    await model.close(5)
    assert not Path(said["temporary"]).exists()


@pytest.mark.usefixtures("probe")
async def test_a_worker_runs_where_its_host_policy_says(models: Models) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    group = 'instance_group [ { kind: KIND_CPU host_policy: "first" } ]'
    policies = HostPolicies((("first", "cpu-cores", "0-0"),))
    model = await models.load(f"{PROBE} {group}", hosts=policies)
    assert (await seen(models, model))["cores"] == [0]


@pytest.mark.usefixtures("probe")
async def test_every_instance_has_a_process_and_the_opening_one_is_used(
    models: Models, tmp_path: Path, until: Callable[..., Any]
) -> None:
    diary = tmp_path / "diary"
    model = await models.load(PROBE + " instance_group [ { count: 3 } ]" + parameter("diary", str(diary)))
    assert len(set(pids(model))) == 3
    await until(lambda: workers() == set(pids(model)))
    await model.close(5)
    await until(lambda: not workers())
    assert sorted(diary.read_text().split("\n")) == ["", *["instance closed"] * 3, *["model closed"] * 3]


@pytest.mark.usefixtures("probe")
async def test_instances_that_share_live_in_one_process_and_return_to_one(
    models: Models, until: Callable[..., Any]
) -> None:
    model = await models.load(PROBE + " instance_group [ { count: 3 } ]" + parameter("shares", "true"))
    (before,) = set(pids(model))
    await until(lambda: workers() == {before})
    assert (await ask(models, model, parameters={"do": "die"}).error()).message.startswith("the worker process of")

    def all_back() -> bool:
        return all(runner.instance.usable() for runner in model.scheduler._instances)  # type: ignore[attr-defined]

    await until(all_back)
    (after,) = set(pids(model))
    assert after != before
    await until(lambda: workers() == {after})
    assert (await seen(models, model))["pid"] == after


@pytest.mark.usefixtures("probe")
async def test_fewer_instances_are_fewer_processes(models: Models, until: Callable[..., Any]) -> None:
    model = await models.load(PROBE + " instance_group [ { count: 2 } ]")
    await until(lambda: len(workers()) == 2)
    assert model.resize is not None
    await model.resize(parse_pbtxt(PROBE))
    await until(lambda: len(workers()) == 1)
    assert workers() == set(pids(model))
    assert (await seen(models, model))["rows"] == 1


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize(
    ("what", "how", "sentence"),
    [
        ("open", "fail", "the file is broken"),
        ("open", "die", "the worker process of 'm' cannot be used: it ended with status 9"),
        ("create", "fail", "no such device"),
    ],
)
async def test_a_load_that_fails_says_why_and_leaves_nothing(
    models: Models, until: Callable[..., Any], what: str, how: str, sentence: str
) -> None:
    with pytest.raises(InferenceError) as refused:
        await models.load(PROBE + parameter(what, how))
    assert refused.value.message == sentence
    await until(lambda: not workers())


@pytest.mark.usefixtures("probe")
async def test_a_worker_that_dies_fails_its_batch_and_is_replaced(models: Models) -> None:
    model = await models.load(PROBE)
    (before,) = pids(model)
    with capture_logs() as logs:
        error = await ask(models, model, parameters={"do": "die"}).error()
        assert error.message == "the worker process of instance 'm_0' ended unexpectedly"
        assert not model.ready()
        assert (await seen(models, model))["pid"] != before
    assert model.ready()
    events = [entry["event"] for entry in logs]
    assert "python.worker_died" in events and "python.worker_restarted" in events


async def test_what_starts_processes_itself_is_not_hosted_again(models: Models, until: Callable[..., Any]) -> None:
    file = b"class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
    model = await models.load('backend: "python"' + parameter("flotilla.host", "process"), files={"model.py": file})
    await until(lambda: not workers())
    assert model.ready()
