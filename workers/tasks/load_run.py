"""A closed loop of requests against one unit: so many under way at once, for so long, each with the same tensors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from registry.domain.measurements import Answers
from workers.node_client.client import BinaryRequest, NodeClient, Target
from workers.node_client.errors import NodeClientError, NodeErrorCode

# A request that takes longer than this is not worth measuring.
ANSWER_SECONDS = 30.0
# After so many refusals without one answer between them nothing better is to be expected.
MOST_REFUSALS = 5


async def load_run(
    client: NodeClient,
    model: str,
    target: Target,
    request: BinaryRequest,
    *,
    in_flight: int,
    seconds: float,
    is_stopped: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Answers:
    """Keep ``in_flight`` requests under way for ``seconds``; the first of each caller only warms up.

    Raises:
        NodeClientError: the node cannot be reached any more.
    """
    callers = [_Caller(client, model, target, request) for _number in range(in_flight)]
    await asyncio.gather(*(caller.ask() for caller in callers))
    for caller in callers:
        caller.forget_answers()
    begun = clock()
    end = begun + seconds

    async def work(caller: _Caller) -> None:
        while clock() < end and not is_stopped() and caller.refusals < MOST_REFUSALS:
            await caller.ask()

    await asyncio.gather(*(work(caller) for caller in callers))
    latencies = tuple(latency for caller in callers for latency in caller.latencies)
    answered = max(len(latencies), 1)
    return Answers(
        seconds=max(clock() - begun, 1e-6),
        latencies=latencies,
        compute_seconds=sum(caller.compute_us for caller in callers) / answered / 1e6,
        queue_seconds=sum(caller.queue_us for caller in callers) / answered / 1e6,
        failures=sum(caller.failures for caller in callers),
        refusal=next((caller.refusal for caller in callers if caller.refusal), ""),
    )


class _Caller:
    """One of the callers: asks, waits, remembers. ``refusals`` counts those since the last answer."""

    def __init__(self, client: NodeClient, model: str, target: Target, request: BinaryRequest) -> None:
        self._client = client
        self._ask = (model, request)
        self._target = target
        self.refusals = 0
        self.refusal = ""
        self.forget_answers()

    def forget_answers(self) -> None:
        self.latencies: list[float] = []
        self.compute_us = self.queue_us = 0.0
        self.failures = 0

    async def ask(self) -> None:
        """Send one request. A refusal is noted; a node that is gone ends the run."""
        model, request = self._ask
        begun = time.perf_counter()
        try:
            answer = await self._client.measure(model, request, target=self._target, timeout_seconds=ANSWER_SECONDS)
        except NodeClientError as error:
            if error.code in (NodeErrorCode.UNREACHABLE, NodeErrorCode.UNAUTHORIZED):
                raise
            self.failures += 1
            self.refusals += 1
            self.refusal = error.message
            return
        self.latencies.append(time.perf_counter() - begun)
        self.refusals = 0
        timing = answer.get("timing", {})
        self.compute_us += timing.get("compute_us", 0)
        self.queue_us += timing.get("queue_us", 0)
