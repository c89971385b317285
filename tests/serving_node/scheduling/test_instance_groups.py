"""From instance groups to instances: where they are, on which cores they run, and what they share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.backend import Device, DeviceKind, Host, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.host_policy import HostPolicy
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.scheduling.host_policies import HostPolicies
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.rate_limit import Limit
from serving_node.scheduling.served_model import ServedModel
from serving_node.scheduling.turns import Turns

CORE = min(os.sched_getaffinity(0))
IO = """
    name: "m" backend: "noting"
    input { name: "x" data_type: TYPE_INT8 dims: [1] }
    output { name: "y" data_type: TYPE_INT8 dims: [1] }
"""


class Noting:
    """A backend that notes where its instances are made and run."""

    name = "noting"

    def __init__(self) -> None:
        self.made: list[tuple[str, Device]] = []
        self.made_on: list[set[int]] = []
        self.ran_on: list[set[int]] = []
        self.closed = 0

    def get(self, name: str, host: Host | None = None) -> Noting:
        return self

    def open_model(self, source: ModelSource) -> Noting:
        return self

    def signature(self) -> None:
        return None

    def create_instance(self, device: Device, config: object, name: str) -> _Instance:
        self.made.append((name, device))
        self.made_on.append(os.sched_getaffinity(0))
        return _Instance(self)

    def memory_bytes(self) -> int:
        return 0

    def close(self) -> None:
        pass


class _Instance:
    def __init__(self, backend: Noting) -> None:
        self._backend = backend

    def execute(self, execution: Execution) -> None:
        self._backend.ran_on.append(os.sched_getaffinity(0))
        execution.results.extend(list(request.inputs) for request in execution.requests)

    def close(self) -> None:
        self._backend.closed += 1


@pytest.fixture
def noting() -> Noting:
    return Noting()


Load = Callable[..., Any]


@pytest.fixture
def load(noting: Noting, tmp_path: Path) -> Load:
    async def make(groups: str, **more: Any) -> ServedModel:
        (tmp_path / "1").mkdir(exist_ok=True)
        config = parse_pbtxt(IO + groups)
        return await load_served_model(
            name="m", version=1, version_dir=tmp_path / "1", config=config, backends=noting, **more
        )

    return make


async def ask(model: ServedModel) -> InferenceResponse:
    answer: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()
    model.submit(InferenceRequest("m", "", [Tensor("x", "INT8", (1,), b"1")], answer.set_result))
    return await asyncio.wait_for(answer, 30)


async def test_instances_of_every_kind(load: Load, noting: Noting) -> None:
    model = await load(
        "instance_group { kind: KIND_GPU count: 2 gpus: [1, 0] } instance_group { name: 'x' kind: KIND_CPU }"
        " instance_group { kind: KIND_MODEL } instance_group { kind: KIND_AUTO gpus: [1] }"
        " instance_group { name: 'spare' kind: KIND_CPU count: 4 passive: true }",
        gpu_count=2,
    )
    gpus = [Device(DeviceKind.GPU, 0), Device(DeviceKind.GPU, 1)]
    assert noting.made == [
        ("m_0_0", gpus[1]),
        ("m_0_1", gpus[1]),
        ("m_0_2", gpus[0]),
        ("m_0_3", gpus[0]),
        ("x_0", Device()),
        ("m_2_0", Device(DeviceKind.MODEL)),
        ("m_3_0", gpus[1]),
    ]
    await model.close()
    assert noting.closed == 7


async def test_a_group_without_gpus_is_on_all(load: Load, noting: Noting) -> None:
    model = await load("instance_group { count: 1 }", gpu_count=2)
    assert [device.index for _, device in noting.made] == [0, 1]
    await model.close()


async def test_a_model_of_passive_groups_alone_is_refused(load: Load) -> None:
    with pytest.raises(InferenceError, match="model 'm' has no instance to run on"):
        await load("instance_group { kind: KIND_CPU passive: true }")


async def test_instances_are_made_and_run_on_the_cores_of_their_policy(load: Load, noting: Noting) -> None:
    before = os.sched_getaffinity(0)
    hosts = HostPolicies([("near", "cpu-cores", f"{CORE}-{CORE}")])
    model = await load("instance_group { kind: KIND_CPU host_policy: 'near' }", hosts=hosts)
    noting.ran_on.clear()  # the warm-up
    assert (await ask(model)).error is None
    assert noting.made_on == [{CORE}] and noting.ran_on == [{CORE}]
    assert os.sched_getaffinity(0) == before
    assert await asyncio.to_thread(os.sched_getaffinity, 0) == before, "threads that load models are as they were"
    await model.close()


def test_a_group_without_a_policy_has_that_of_its_kind() -> None:
    hosts = HostPolicies(
        [
            ("cpu", "cpu-cores", "0-1"),
            ("cpu", "cpu-cores", "2-3"),
            ("gpu_1", "numa-node", "1"),
            ("model", "cpu-cores", "4-4"),
            ("model", "numa-node", "0"),
        ]
    )
    groups = parse_pbtxt(
        "instance_group { kind: KIND_CPU } instance_group { kind: KIND_GPU } instance_group { kind: KIND_MODEL }"
        " instance_group { kind: KIND_CPU host_policy: 'unknown' }"
    ).instance_group
    assert hosts.of(groups[0], None) == HostPolicy((2, 3)), "the last word counts"
    assert [hosts.of(groups[1], gpu) for gpu in (0, 1)] == [HostPolicy(), HostPolicy(memory_node=1)]
    assert hosts.of(groups[2], None) == HostPolicy((4, 4), 0)
    assert hosts.of(groups[3], None) == HostPolicy()


@pytest.mark.parametrize(
    ("setting", "value", "code", "sentence"),
    [
        (
            "cpu-cores",
            "1",
            ErrorCode.INVALID_ARG,
            "host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got 1",
        ),
        ("cpu-cores", "a-1", ErrorCode.INVALID_ARG, "Parsing 'cpu-cores' value: Can't parse 'a' to integer"),
        ("cpu-cores", "0-", ErrorCode.INVALID_ARG, "Parsing 'cpu-cores' value: Can't parse '' to integer"),
        ("cpu-cores", "1-0", ErrorCode.INTERNAL, "Unable to set NUMA thread affinity: Invalid argument"),
        ("numa-node", "c", ErrorCode.INVALID_ARG, "Parsing 'numa-node' value: Can't parse 'c' to integer"),
        ("numa-node", "-3", ErrorCode.INTERNAL, "Unable to set NUMA memory policy: there is no node -3"),
    ],
)
async def test_a_policy_that_cannot_be_followed_fails_the_load(
    load: Load, setting: str, value: str, code: ErrorCode, sentence: str
) -> None:
    hosts = HostPolicies([("p", setting, value)])
    with pytest.raises(InferenceError) as caught:
        await load("instance_group { kind: KIND_CPU host_policy: 'p' }", hosts=hosts)
    assert (caught.value.code, caught.value.message) == (code, sentence)


def needs(count: int, name: str = "R1", more: str = "") -> str:
    resource = f'resources {{ name: "{name}" count: {count} {more} }}'
    return f"instance_group {{ kind: KIND_CPU rate_limiter {{ {resource} }} }}"


async def test_a_model_that_needs_too_much_is_refused_and_leaves_nothing(load: Load, noting: Noting) -> None:
    turns = Turns([Limit("R1", 1)])
    with pytest.raises(InferenceError) as caught:
        await load(needs(2), turns=turns)
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == (
        'Resource count for "R1" is limited to 1 which will prevent scheduling of one or more model instances,'
        " the minimum required count is 2"
    )
    assert noting.closed == 1
    model = await load(needs(1), turns=turns)
    assert (await ask(model)).error is None
    with pytest.raises(InferenceError, match=r'"R1" is present as both global and device-specific resource'):
        await load(needs(1, more="global: true"), turns=turns)
    await model.close()
    model = await load(needs(1, more="global: true"), turns=turns)
    assert (await ask(model)).error is None
    await model.close()


async def test_more_instances_than_resources_allow_are_refused_while_the_old_ones_serve(
    load: Load, noting: Noting
) -> None:
    turns = Turns([Limit("R1", 2)])
    model = await load(needs(1), turns=turns)
    with pytest.raises(InferenceError, match="minimum required count is 3"):
        await model.resize(parse_pbtxt(IO + needs(1) + needs(3)))
    assert noting.closed == 1
    assert (await ask(model)).error is None
    await model.resize(parse_pbtxt(IO + needs(2)))
    assert (await ask(model)).error is None
    await model.close()
    assert noting.closed == len(noting.made) == 3


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
async def test_sequences_take_turns_with_other_models(load: Load, strategy: str) -> None:
    turns = Turns([Limit("R1", 1)])
    other = await load(needs(1), turns=turns)
    model = await load(f"max_batch_size: 4 sequence_batching {{ {strategy} }} {needs(1)}", turns=turns)
    answers: asyncio.Queue[InferenceResponse] = asyncio.Queue()
    for step in range(3):
        for sequence in (7, 8):
            request = InferenceRequest("m", "", [Tensor("x", "INT8", (1, 1), b"1")], answers.put_nowait)
            request.sequence_id, request.sequence_start, request.sequence_end = sequence, step == 0, step == 2
            model.submit(request)
        assert (await ask(other)).error is None
    for _ in range(6):
        assert (await asyncio.wait_for(answers.get(), 30)).error is None
    await model.close()
    await other.close()
    again = await load(needs(1, more="global: true"), turns=turns)
    assert (await ask(again)).error is None, "nobody of those before is left"
    await again.close()
