"""Models in worker processes: the same answers as in threads, and what crosses the boundary."""

from __future__ import annotations

import numpy as np

from serving_node.backends.hosted.backend import HostedInstance

from .conftest import Models


async def test_answers_come_back_as_they_were_sent(models: Models) -> None:
    model = await models.load()
    for shape in ((1, 3), (7, 5), (8, 60_000), (2, 0)):
        array = np.random.default_rng(1).random(shape, np.float32)
        assert np.array_equal(await models.submit(model, array).array(), array)
