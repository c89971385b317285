"""Models that ask other models: requests, cancellation, deaths, memory, and questions that nobody can answer."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving_node.backends.loader import Backends
from serving_node.backends.python.instance import PythonInstance
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls
from serving_node.core.request import InferenceRequest
from serving_node.scheduling.served_model import ServedModel

from .conftest import Models

DECOUPLED = "model_transaction_policy { decoupled: true }"
ECHO = """
def execute(self, requests):
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.inputs()[0].as_numpy())]) for one in requests]
"""
# answers with what `self.asked(request, array)` returns
ASKS = """
def to(self, model, array, **more):
    given = [pb_utils.Tensor("IN", np.asarray(array, np.float32))]
    return pb_utils.InferenceRequest(model_name=model, inputs=given, requested_output_names=["OUT"], **more)

def out(self, response):
    if response.has_error():
        raise pb_utils.TritonModelException(f"{int(response.error().code())}: {response.error().message()}")
    return response.output_tensors()[0].as_numpy()

def execute(self, requests):
    answers = []
    for request in requests:
        array = self.asked(request, request.inputs()[0].as_numpy())
        answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.asarray(array, np.float32))]))
    return answers
"""
WAITS = """
def initialize(self, args):
    self.folder = args["model_repository"]

def execute(self, requests):
    open(self.folder + "/running", "w").close()
    deadline = time.monotonic() + 20
    while not requests[0].is_cancelled() and time.monotonic() < deadline:
        time.sleep(0.005)
    open(self.folder + "/cancelled", "w").close()
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))])]
"""


def asks(body: str) -> str:
    return f"{ASKS}\n{textwrap.dedent(body)}"


class Node:
    """The part of a dataplane that models may ask for: models by name, and loads that take their time."""

    def __init__(self) -> None:
        self.models: dict[str, ServedModel] = {}
        self.requests: list[InferenceRequest] = []
        self.deeds: list[tuple[Any, ...]] = []

    def infer(self, request: InferenceRequest) -> None:
        request.arrival_ns = time.monotonic_ns()
        self.requests.append(request)
        model = self._find(request.model_name)
        if model.decoupled and request.refuse_decoupled:
            raise InferenceError(ErrorCode.UNSUPPORTED, request.refuse_decoupled)
        model.rules.check(request)
        model.submit(request)

    def model_ready(self, name: str, version: str) -> bool:
        return name in self.models and self.models[name].ready()

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        await asyncio.sleep(0)
        self.deeds.append(("load", name, config_json, files))
        if name == "bad":
            raise InferenceError(ErrorCode.INVALID_ARG, "it is bad")

    async def unload(self, name: str, unload_dependents: bool) -> None:
        self.deeds.append(("unload", name, unload_dependents))

    def _find(self, name: str) -> ServedModel:
        if name not in self.models:
            raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        return self.models[name]


class Asking(Models):
    """Models behind one door."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.node = Node()
        door = InnerCalls()
        door.open(self.node, asyncio.get_running_loop().call_soon_threadsafe)  # type: ignore[arg-type]
        self.backends = Backends({"python": {}}, door)

    async def load(self, body: str, extra: str = "", *, name: str = "m", **more: Any) -> ServedModel:
        model = await super().load(body, extra, name=name, **more)
        self.node.models[name] = model
        return model


@pytest.fixture
async def models(tmp_path: Path) -> AsyncIterator[Asking]:
    made = Asking(tmp_path)
    yield made
    for model in reversed(made.loaded):  # those that ask were loaded last
        await model.close(5)


def instance_of(model: ServedModel) -> PythonInstance:
    instance = model.scheduler._instances[0].instance  # type: ignore[attr-defined]
    assert isinstance(instance, PythonInstance)
    return instance


def blocks_of(model: ServedModel) -> tuple[int, int]:
    worker = instance_of(model)._worker
    assert worker is not None
    return worker.link.blocks_in_use


@pytest.mark.parametrize("size", [1, 4096, 4097, 300_000])
async def test_a_request_and_its_response_travel_whole(models: Asking, size: int) -> None:
    await models.load(ECHO, name="echo")
    model = await models.load(
        asks("def asked(self, request, array): return self.out(self.to('echo', array).exec()) * 2")
    )
    array = np.arange(size, dtype=np.float32)
    assert np.array_equal(await models.ask(model, array).array(), array * 2)


async def test_strings_travel_too(models: Asking) -> None:
    await models.load(ECHO, name="echo", datatype="TYPE_STRING")
    body = """
    def execute(self, requests):
        given = requests[0].inputs()
        inner = pb_utils.InferenceRequest(model_name="echo", inputs=given, requested_output_names=["OUT"])
        return [pb_utils.InferenceResponse(inner.exec().output_tensors())]
    """
    model = await models.load(body, datatype="TYPE_STRING")
    asked = models.ask(model, [b"a\0b", b"", b"x" * 40_000], dtype="BYTES")
    assert (await asked.array()).tolist() == [b"a\0b", b"", b"x" * 40_000]


async def test_blocks_are_given_back(models: Asking) -> None:
    echo = await models.load(ECHO, name="echo")
    model = await models.load(asks("def asked(self, request, array): return self.out(self.to('echo', array).exec())"))
    array = np.ones(100_000, np.float32)
    gc.collect()
    gc.disable()
    try:
        for _ in range(30):
            asked = models.ask(model, array)
            assert np.array_equal(await asked.array(), array)
            asked.responses.clear()  # they are views too
            models.node.requests.clear()
        for _ in range(3):
            await models.ask(model, [1.0]).array()
        for one in (echo, model):
            assert max(blocks_of(one)) <= 2
    finally:
        gc.enable()


async def test_many_requests_at_once(models: Asking) -> None:
    await models.load(ECHO, name="echo")
    body = """
    async def execute(self, requests):
        import asyncio
        array = requests[0].inputs()[0].as_numpy()
        inner = [self.to("echo", array + number) for number in range(200)]
        responses = await asyncio.gather(*(one.async_exec() for one in inner))
        total = sum(self.out(response) for response in responses)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", total)])]
    """
    model = await models.load(asks(body))
    assert (await models.ask(model, [0, 1]).array()).tolist() == [19900, 20100]


async def test_the_kind_of_an_error_is_that_of_the_model(models: Asking) -> None:
    fails = "def execute(self, requests): return [pb_utils.InferenceResponse(error=pb_utils.TritonError('no', 2))]"
    await models.load(fails, name="fails")
    body = """
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=self.to("fails", [1]).exec().error())]
    """
    model = await models.load(asks(body))
    error = (await models.ask(model, [0]).answer()).error
    assert error is not None and (error.code, error.message) == (ErrorCode.NOT_FOUND, "no")


async def test_responses_of_a_decoupled_model_are_gone_through_as_they_come(models: Asking) -> None:
    repeats = """
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        for number in range(3):
            error = pb_utils.TritonError("second") if number == 1 else None
            tensors = [] if error else [pb_utils.Tensor("OUT", np.full(30_000, number, np.float32))]
            sender.send(pb_utils.InferenceResponse(tensors, error))
        sender.send(flags=1)
    """
    await models.load(repeats, DECOUPLED, name="repeats")
    body = """
    def asked(self, request, array):
        stream = self.to("repeats", [1]).exec(decoupled=True)
        seen = [-1 if r.has_error() else len(r.output_tensors()) for r in stream]
        return seen + [len(list(stream))]
    """
    model = await models.load(asks(body))
    assert (await models.ask(model, [0]).array()).tolist() == [1, -1, 1, 0, 4]


@pytest.mark.parametrize("how", ["stream.cancel(); list(stream)", "del stream"])
async def test_a_stream_that_nobody_wants_is_cancelled(models: Asking, how: str, until: Callable[..., Any]) -> None:
    endless = """
    def execute(self, requests):
        threading.Thread(target=self.send, args=(requests[0].get_response_sender(),)).start()

    def send(self, sender):
        while not sender.is_cancelled():
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(1, np.float32))]))
            time.sleep(0.002)
        sender.send(flags=1)
    """
    inner = await models.load(endless, DECOUPLED, name="endless")
    body = f"""
    def asked(self, request, array):
        stream = self.to("endless", [1]).exec(decoupled=True)
        next(stream)
        {how}
        return [1]
    """
    model = await models.load(asks(body))
    assert (await models.ask(model, [0]).array()).tolist() == [1]
    await until(lambda: inner.scheduler.inflight_count() == 0)
    assert models.node.requests[0].cancelled


async def test_inner_requests_are_cancelled_with_the_outer_one(models: Asking, until: Callable[..., Any]) -> None:
    await models.load(WAITS, name="waits")
    model = await models.load(asks("def asked(self, request, array): return self.out(self.to('waits', array).exec())"))
    asked = models.ask(model, [0])
    await until((models.folder / "waits" / "running").exists)
    asked.request.cancel()
    assert "7: the request that this one belongs to was cancelled" in await asked.error()
    await until((models.folder / "waits" / "cancelled").exists)


async def test_those_of_an_async_decoupled_model_belong_to_their_request(
    models: Asking, until: Callable[..., Any]
) -> None:
    await models.load(WAITS, name="waits")
    await models.load(ECHO, name="echo")
    body = """
    async def execute(self, requests):
        sender = requests[0].get_response_sender()
        model = "waits" if requests[0].inputs()[0].as_numpy()[0] else "echo"
        response = await self.to(model, [1]).async_exec()
        sender.send(response, flags=1)
    """
    model = await models.load(asks(body), DECOUPLED)
    leaves = models.ask(model, [1])
    await until((models.folder / "waits" / "running").exists)
    assert (await models.ask(model, [0]).array()).tolist() == [1]
    leaves.request.cancel()
    answer = await leaves.answer()
    assert answer.error is not None and answer.error.code is ErrorCode.CANCELLED


async def test_an_await_that_is_given_up_cancels_its_request(models: Asking, until: Callable[..., Any]) -> None:
    await models.load(WAITS, name="waits")
    body = """
    async def execute(self, requests):
        import asyncio
        try:
            await asyncio.wait_for(self.to("waits", [1]).async_exec(), 0.2)
        except asyncio.TimeoutError:
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))])]
    """
    model = await models.load(asks(body))
    assert (await models.ask(model, [0]).array()).tolist() == [1]
    await until((models.folder / "waits" / "cancelled").exists)


async def test_the_requests_of_a_process_that_dies_are_cancelled(models: Asking, until: Callable[..., Any]) -> None:
    inner = await models.load(WAITS, name="waits")
    model = await models.load(asks("def asked(self, request, array): return self.out(self.to('waits', array).exec())"))
    asked = models.ask(model, np.ones(50_000))
    await until((models.folder / "waits" / "running").exists)
    worker = instance_of(model)._worker
    assert worker is not None
    os.kill(worker.link.process.pid, signal.SIGKILL)
    assert "is not healthy" in await asked.error()
    await until((models.folder / "waits" / "cancelled").exists)
    await until(lambda: inner.scheduler.inflight_count() == 0)
    assert not worker.exchange.calls
    await until(model.ready)


async def test_a_model_that_dies_while_others_wait_for_it_fails_their_requests(models: Asking) -> None:
    await models.load("def execute(self, requests): os._exit(3)", name="dies")
    model = await models.load(asks("def asked(self, request, array): return self.out(self.to('dies', array).exec())"))
    assert "1: Stub process 'dies_0' is not healthy." in await models.ask(model, [0]).error()


async def test_a_model_that_is_closed_takes_its_requests_along(models: Asking, until: Callable[..., Any]) -> None:
    inner = await models.load(WAITS, name="waits")
    model = await models.load(asks("def asked(self, request, array): return self.out(self.to('waits', array).exec())"))
    asked = models.ask(model, [0])
    await until((models.folder / "waits" / "running").exists)
    await model.close(0.1)
    assert "is not healthy" in await asked.error()
    await until((models.folder / "waits" / "cancelled").exists)
    await until(lambda: inner.scheduler.inflight_count() == 0)


@pytest.mark.parametrize("through", ["m", "between"])
async def test_a_model_that_would_wait_for_itself_is_told(models: Asking, through: str) -> None:
    await models.load(
        asks("def asked(self, request, array): return self.out(self.to('m', array).exec())"), name="between"
    )
    model = await models.load(
        asks(f"def asked(self, request, array): return self.out(self.to('{through}', array).exec())")
    )
    assert "every instance of 'm' waits" in await models.ask(model, [0]).error()
    assert "every instance of 'm' waits" in await models.ask(model, [0]).error()


async def test_a_model_may_ask_itself_while_an_instance_is_free(models: Asking) -> None:
    body = """
    def asked(self, request, array):
        return array if array[0] <= 0 else self.out(self.to("m", array - 1).exec()) + 10
    """
    model = await models.load(asks(body), "instance_group [ { kind: KIND_CPU count: 3 } ]")
    assert (await models.ask(model, [2]).array()).tolist() == [20]
    assert "every instance of 'm' waits" in await models.ask(model, [3]).error()
    together = await asyncio.gather(*(models.ask(model, [2]).answer() for _ in range(6)))
    assert len(together) == 6  # whether they succeed depends on who is first; nobody waits for ever
    assert (await models.ask(model, [1]).array()).tolist() == [10]


async def test_other_models_are_loaded_and_asked_for(models: Asking) -> None:
    await models.load(ECHO, name="echo")
    body = """
    def initialize(self, args):
        pb_utils.load_model("first")
        self.early = pb_utils.is_model_ready("echo")
        try:
            self.to("echo", [1]).exec()
        except pb_utils.TritonModelException as error:
            assert "only supported during the 'execute'" in str(error)
        else:
            self.early = False

    def asked(self, request, array):
        pb_utils.load_model("second", config="{}", files={"file:1/model.py": b"x" * 50_000, "file:1/a": b""})
        pb_utils.unload_model("first", unload_dependents=True)
        told = []
        for name, files in (("bad", None), ("second", {"1/model.py": b""})):
            try:
                pb_utils.load_model(name, files=files)
            except pb_utils.TritonModelException as error:
                told.append(str(error))
        assert told == [
            "Failed to load model: Failed to process the request for model 'm_0', message: it is bad",
            "Failed to load model: unrecognized load parameter '1/model.py'.",
        ], told
        return [self.early, pb_utils.is_model_ready("nobody"), pb_utils.is_model_ready(model_name="echo")]
    """
    model = await models.load(asks(body))
    assert (await models.ask(model, [0]).array()).tolist() == [1, 0, 1]
    assert models.node.deeds == [
        ("load", "first", None, {}),
        ("load", "second", "{}", {"1/model.py": b"x" * 50_000, "1/a": b""}),
        ("unload", "first", True),
        ("load", "bad", None, {}),
    ]


async def test_loadings_that_would_wait_for_each_other_are_told(models: Asking) -> None:
    async def load(name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        await models.load("def initialize(self, args): pb_utils.load_model('m')", name=name)

    models.node.load = load  # type: ignore[method-assign]
    for name in ("m", "other"):
        with pytest.raises(InferenceError, match="cannot be loaded now"):
            await models.load(f"def initialize(self, args): pb_utils.load_model('{name}')")


async def test_warm_up_may_ask_other_models(models: Asking) -> None:
    await models.load(ECHO, name="echo")
    tensor = "data_type: TYPE_FP32 dims: 2 zero_data: true"
    warm = f'model_warmup [ {{ name: "w" batch_size: 1 inputs {{ key: "IN" value {{ {tensor} }} }} }} ]'
    body = """
    def asked(self, request, array):
        self.count = getattr(self, "count", 0) + 1
        return self.out(self.to("echo", array).exec()) + self.count
    """
    model = await models.load(asks(body), warm)
    assert (await models.ask(model, [0]).array()).tolist() == [2]


async def test_readiness_may_ask_other_models_while_requests_wait_for_answers(
    models: Asking, until: Callable[..., Any]
) -> None:
    await models.load(ECHO, name="echo")
    body = """
    def is_ready(self):
        return pb_utils.is_model_ready("echo")

    def asked(self, request, array):
        for _ in range(50):
            array = self.out(self.to("echo", array).exec()) + 1
        return array
    """
    model = await models.load(asks(body))
    assert (await models.ask(model, [0]).array()).tolist() == [50]
    await until(model.ready)


class Trace:
    """Notes what becomes of a trace and those below it."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.children: list[Trace] = []

    def child(self) -> Trace:
        self.children.append(Trace())
        return self.children[-1]

    def context(self) -> str:
        return '{"traceparent": "00-1-2-01"}'

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.noted.append(name)


async def test_the_trace_of_an_inner_request_is_below_that_of_the_outer_one(models: Asking) -> None:
    await models.load(ECHO, name="echo")
    body = """
    def asked(self, request, array):
        self.out(self.to("echo", array).exec())
        return self.out(self.to("echo", array, trace=request.trace()).exec())
    """
    model = await models.load(asks(body))
    asked = models.make(model, [1])
    trace = asked.request.trace = Trace()  # type: ignore[assignment]
    model.submit(asked.request)
    assert (await asked.array()).tolist() == [1]
    (child,) = trace.children
    assert child.noted.count("end") == child.noted.count("finish") == 1
    assert [request.trace is child for request in models.node.requests] == [False, True]


async def test_nonsense_from_a_worker_ends_it(models: Asking, until: Callable[..., Any]) -> None:
    await models.load(ECHO, name="echo")
    body = """
    def asked(self, request, array):
        runtime = pb_utils._runtime._model
        fields = [[7, None, False, "echo"], ["x", None, 0, 5, "v", 0, 0, 0, 0, 0, 0, []], [1, [["a"]]]]
        runtime.channel.send([25, 25, 27][int(array[0])], fields[int(array[0])])
        return self.out(self.to("echo", [1]).exec())
    """
    model = await models.load(asks(body))
    for value in range(3):
        assert "is not healthy" in await models.ask(model, [value]).error()
        await until(model.ready)
