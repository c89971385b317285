"""Looking for the next message instead of sleeping changes when things happen, never what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from serving_node.backends.loader import Backends
from serving_node.backends.python.settings import python_options

from .conftest import Models
from .test_life import ECHO, instance_of


@pytest.mark.parametrize(("text", "expected_ns"), [("", 300_000), ("0", 0), ("-1", 0), ("50", 50_000)])
def test_the_option_is_in_microseconds_and_zero_is_off(text: str, expected_ns: int) -> None:
    assert python_options({"busy-poll-microseconds": text}).busy_poll_ns == expected_ns


@pytest.mark.parametrize("microseconds", ["0", "300", "1000000"])
async def test_one_by_one_and_many_at_once_are_answered(
    models: Models, microseconds: str, until: Callable[..., Any]
) -> None:
    models.backends = Backends({"python": {"busy-poll-microseconds": microseconds}})
    model = await models.load(ECHO)
    for number in range(1, 150):  # the process learns that messages follow closely
        array = np.array([number], np.float32)
        assert (await models.ask(model, array).array()).tolist() == [number]
    asked = [models.ask(model, np.array([number], np.float32)) for number in range(1, 40)]
    assert [(await one.array()).tolist() for one in asked] == [[number] for number in range(1, 40)]
    assert not model.scheduler.inflight_count()
    await until(lambda: instance_of(model)._awake_until_ns == 0)  # nobody keeps the loop awake for nothing


async def test_the_loop_sleeps_soon_after_requests_that_came_one_by_one(
    models: Models, until: Callable[..., Any]
) -> None:
    model = await models.load(ECHO)
    for number in range(1, 150):
        assert (await models.ask(model, [number]).array()).tolist() == [number]
    await until(lambda: instance_of(model)._awake_until_ns == 0)
    assert (await models.ask(model, [7]).array()).tolist() == [7]
