"""Requests that run more than once: iterative sequences of Python models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Models

ITERATIVE = (
    "max_batch_size: 4 sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 4 } }"
    " instance_group { kind: KIND_CPU count: 1 }"
)
DECOUPLED = f"{ITERATIVE} model_transaction_policy {{ decoupled: true }}"
AGAIN = "request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)"


async def test_a_decoupled_model_answers_in_every_pass(
    models: Models, until: Callable[[Callable[[], bool]], Any]
) -> None:
    body = f"""
    def initialize(self, args):
        self.passes = {{}}

    def execute(self, requests):
        for request in requests:
            key = request.correlation_id()
            number = self.passes[key] = self.passes.get(key, 0) + 1
            wanted = int(request.inputs()[0].as_numpy()[0, 0])
            sender = request.get_response_sender()
            tensor = pb_utils.Tensor("OUT", np.array([[number, request.flags()]], np.float32))
            sender.send(pb_utils.InferenceResponse([tensor]))
            if number < wanted:
                {AGAIN}
            else:
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    model = await models.load(body, DECOUPLED)
    asked = [models.ask(model, [[count]]) for count in (1, 3, 5, 2, 4)]
    for one, count in zip(asked, (1, 3, 5, 2, 4), strict=True):
        await one.answer()
        *parts, last = one.responses
        expected = [[number, float(number == 1)] for number in range(1, count + 1)]
        assert [part.outputs[0].as_numpy()[0].tolist() for part in parts] == expected
        assert last.flag_only
        assert not any(part.final for part in parts)
    await until(lambda: model.scheduler.inflight_count() == 0)  # the last batch ends after its last response
    assert model.statistics.success.count == 5


async def test_the_sender_of_an_earlier_pass_is_closed(models: Models) -> None:
    body = f"""
    def initialize(self, args):
        self.sender = None

    def execute(self, requests):
        (request,) = requests
        if self.sender is None:
            self.sender = request.get_response_sender()
            {AGAIN}
            return None
        try:
            self.sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except pb_utils.TritonModelException as error:
            error = pb_utils.TritonError(str(error))
            request.get_response_sender().send(
                pb_utils.InferenceResponse(error=error), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            )
    """
    model = await models.load(body, DECOUPLED)
    assert await models.ask(model, [[1]]).error() == "Unable to send response. Response sender has been closed."


async def test_passes_end_when_the_client_leaves(models: Models, until: Callable[[Callable[[], bool]], Any]) -> None:
    body = f"""
    def execute(self, requests):
        for request in requests:
            {AGAIN}
        return [None for _ in requests]
    """
    model = await models.load(body, ITERATIVE)
    asked = models.ask(model, [[1]])
    await until(lambda: model.statistics.execution_count > 3)
    assert not asked.responses
    asked.request.cancel()
    assert await asked.error() == ""
    assert model.scheduler.inflight_count() == 0


async def test_a_request_fails_when_its_process_dies_in_a_later_pass(models: Models) -> None:
    body = f"""
    def execute(self, requests):
        (request,) = requests
        if not request.flags():
            os._exit(3)
        {AGAIN}
        return [None]
    """
    model = await models.load(body, ITERATIVE)
    assert "is not healthy" in await models.ask(model, [[1]]).error()
    assert model.scheduler.inflight_count() == 0


@pytest.mark.parametrize("scheduling", ["", "dynamic_batching { }"])
async def test_other_models_cannot_ask_for_another_pass(models: Models, scheduling: str) -> None:
    body = f"""
    def execute(self, requests):
        answers = []
        for request in requests:
            if request.inputs()[0].as_numpy()[0, 0] > 0:
                {AGAIN}
                answers.append(None)
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())]))
        return answers
    """
    model = await models.load(body, f"max_batch_size: 4 {scheduling} instance_group {{ kind: KIND_CPU count: 1 }}")
    asked = [models.ask(model, [[value]]) for value in (1, 0, 1)]
    sentence = (
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle"
        " such a flag."
    )
    assert [await asked[0].error(), await asked[2].error()] == [sentence] * 2
    assert (await asked[1].array()).tolist() == [[0]]
