"""The processes of Python models run on the cores of their host policy, also those that replace dead ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from serving_node.scheduling.host_policies import HostPolicies

from .conftest import Models

WHERE = """
def execute(self, requests):
    cores = sorted(os.sched_getaffinity(0))
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([os.getpid(), *cores], np.int64))])]
"""
GROUP = "instance_group [ { kind: KIND_CPU host_policy: 'near' } ]"


async def test_processes_run_on_the_cores_of_their_policy(models: Models, until: Callable[..., Any]) -> None:
    core = min(os.sched_getaffinity(0))
    hosts = HostPolicies([("near", "cpu-cores", f"{core}-{core}")])
    model = await models.load(WHERE, GROUP, datatype="TYPE_INT64", hosts=hosts)
    pid, *cores = await models.ask(model, [0], dtype="INT64").array()
    assert cores == [core]
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not model.ready())
    await until(model.ready)
    other, *cores = await models.ask(model, [0], dtype="INT64").array()
    assert other != pid and cores == [core]


async def test_other_processes_run_anywhere(models: Models) -> None:
    hosts = HostPolicies([("near", "cpu-cores", "0-0")])
    model = await models.load(WHERE, datatype="TYPE_INT64", hosts=hosts)
    _, *cores = await models.ask(model, [0], dtype="INT64").array()
    assert cores == sorted(os.sched_getaffinity(0))
