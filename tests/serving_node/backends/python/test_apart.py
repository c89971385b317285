"""Responses apart from their batch: decoupled models, response senders, cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from serving_node.contract.errors import ErrorCode

from .conftest import Models

DECOUPLED = "model_transaction_policy { decoupled: true }"


async def test_any_number_of_responses_from_a_thread_after_execute_returned(models: Models) -> None:
    body = """
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request,)).start()

    def answer(self, request):
        sender = request.get_response_sender()
        count = int(request.inputs()[0].as_numpy()[0])
        for number in range(count):
            tensor = pb_utils.Tensor("OUT", np.full(20_000, number, np.float32))
            sender.send(pb_utils.InferenceResponse([tensor], parameters={"number": number}))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    model = await models.load(body, DECOUPLED)
    asked = [models.ask(model, [count]) for count in (0, 3, 30)]
    for one, count in zip(asked, (0, 3, 30), strict=True):
        await one.answer()
        *parts, last = one.responses
        assert [part.outputs[0].as_numpy()[7] for part in parts] == list(range(count))
        assert [part.parameters for part in parts] == [{"number": number} for number in range(count)]
        assert last.flag_only and last.final and not any(part.final for part in parts)
    assert model.statistics.success.count == 3 and model.scheduler.inflight_count() == 0


async def test_the_instance_takes_the_next_batch_while_it_still_answers(models: Models) -> None:
    body = """
    def initialize(self, args):
        self.waiting = []

    def execute(self, requests):
        self.waiting += requests
        if len(self.waiting) == 3:
            for request in reversed(self.waiting):
                answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
                request.get_response_sender().send(answer, flags=1)
            self.waiting.clear()
    """
    model = await models.load(body, DECOUPLED)
    asked = [models.ask(model, [number]) for number in range(3)]
    assert [(await one.array()).tolist() for one in asked] == [[0], [1], [2]]
    assert [len(one.responses) for one in asked] == [1, 1, 1]


async def test_an_async_decoupled_model_answers_in_the_background(models: Models) -> None:
    body = """
    async def execute(self, requests):
        import asyncio
        sender = requests[0].get_response_sender()
        await asyncio.sleep(0.01)
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))]))
        sender.send(flags=1)
    """
    model = await models.load(body, DECOUPLED)
    assert len(await models.ask(model, [0]).count(2)) == 2


async def test_errors_of_decoupled_models(models: Models) -> None:
    body = """
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        error = pb_utils.TritonError("not here", pb_utils.TritonError.NOT_FOUND)
        sender.send(pb_utils.InferenceResponse(error=error))
        sender.send(flags=1)
        raise ValueError("after the end")
    """
    model = await models.load(body, DECOUPLED)
    first, last = await models.ask(model, [0]).count(2)
    assert first.error is not None and first.error.code is ErrorCode.NOT_FOUND and not first.final
    assert last.flag_only
    returned = await models.load("def execute(self, requests): return [None]", DECOUPLED, name="returns")
    assert await models.ask(returned, [0]).error() == (
        "Failed to process the request(s) for model 'returns_0', message: Python model 'returns_0' is using the"
        " decoupled mode and the execute function must return None."
    )


@pytest.mark.parametrize("extra", ["", DECOUPLED])
async def test_a_request_that_nobody_can_answer_any_more_ends(models: Models, extra: str) -> None:
    model = await models.load("def execute(self, requests): return None", extra)
    assert (await models.ask(model, [0]).answer()).flag_only


async def test_a_sender_of_a_model_that_is_not_decoupled(models: Models) -> None:
    body = """
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(2, np.float32))])
        sender.send(answer, flags=1)
        return [answer] if requests[0].inputs()[0].as_numpy()[0] else [None]
    """
    model = await models.load(body)
    for value in (0, 1):
        asked = models.ask(model, [value])
        assert (await asked.array()).tolist() == [1, 1]
        assert len(asked.responses) == 1
    assert (await models.ask(model, [0]).array()).tolist() == [1, 1]


async def test_a_running_request_sees_that_its_client_left(models: Models) -> None:
    body = """
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.watch, args=(request.get_response_sender(),)).start()

    def watch(self, sender):
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))]))
        while not sender.is_cancelled():
            time.sleep(0.005)
        error = pb_utils.TritonError("left", pb_utils.TritonError.CANCELLED)
        sender.send(pb_utils.InferenceResponse(error=error), flags=1)
    """
    model = await models.load(body, DECOUPLED)
    leaves, stays = models.ask(model, [0]), models.ask(model, [0])
    await leaves.count(1)
    await stays.count(1)
    leaves.request.cancel()
    assert await leaves.error() == "left"
    assert len(stays.responses) == 1
    stays.request.cancel()
    assert await stays.error() == "left"


async def test_a_request_of_a_running_batch_sees_it_too(models: Models, until: Callable[..., Any]) -> None:
    body = """
    def initialize(self, args):
        self.file = args["model_repository"] + "/running"

    def execute(self, requests):
        open(self.file, "w").close()
        deadline = time.monotonic() + 20
        while not requests[0].is_cancelled() and time.monotonic() < deadline:
            time.sleep(0.005)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))])]
    """
    model = await models.load(body)
    asked = models.ask(model, [0])
    await until((models.folder / "m" / "running").exists)
    asked.request.cancel()
    assert (await asked.array()).tolist() == [0]


async def test_a_batch_that_everybody_left_before_it_began_does_not_run(models: Models) -> None:
    body = """
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        self.count += 1
        time.sleep(float(requests[0].inputs()[0].as_numpy()[0]))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(1, self.count, np.float32))])]
    """
    model = await models.load(body)
    for count in range(1, 40):  # the model is known to be quick now: requests are sent ahead
        assert (await models.ask(model, [0]).array()).tolist() == [count]
    slow, *ahead = [models.ask(model, [seconds]) for seconds in (0.5, 0, 0, 0, 0)]
    for one in ahead:
        one.request.cancel()
    assert (await slow.array()).tolist() == [40]
    for one in ahead:
        await one.answer()
        error = one.responses[-1].error
        assert error is not None and error.code is ErrorCode.CANCELLED
    assert (await models.ask(model, [0]).array()).tolist() == [41]


async def test_unloading_waits_for_the_last_response(models: Models) -> None:
    body = """
    def execute(self, requests):
        self.request = requests[0]
        threading.Timer(0.2, self.answer).start()

    def answer(self):
        tensor = pb_utils.Tensor("OUT", np.ones(1, np.float32))
        self.request.get_response_sender().send(pb_utils.InferenceResponse([tensor]), flags=1)
    """
    model = await models.load(body, DECOUPLED)
    asked = models.ask(model, [0])
    assert await model.drain(20)
    assert np.array_equal(asked.responses[0].outputs[0].as_numpy(), [1])
