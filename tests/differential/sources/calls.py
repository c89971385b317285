import asyncio
import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

START, END = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END


def text(value):
    return np.array([value.encode()], dtype=np.object_)


def pair(shape=(1, 16), names=("INPUT0", "INPUT1"), dtype=np.float32):
    return [pb_utils.Tensor(name, np.full(shape, value, dtype)) for value, name in enumerate(names, 1)]


def to_add_sub(inputs=None, outputs=("OUTPUT0", "OUTPUT1"), model="add_sub", **more):
    given = pair() if inputs is None else inputs
    return pb_utils.InferenceRequest(model_name=model, inputs=given, requested_output_names=list(outputs), **more)


def to_repeat(count, how="", model="repeat", outputs=("OUT",)):
    inputs = [pb_utils.Tensor("IN", np.array([count], np.int32))]
    if how:
        inputs.append(pb_utils.Tensor("HOW", text(how)))
    return pb_utils.InferenceRequest(model_name=model, inputs=inputs, requested_output_names=list(outputs))


def to_failing(how):
    return pb_utils.InferenceRequest(
        model_name="failing", inputs=[pb_utils.Tensor("HOW", text(how))], requested_output_names=["OUT"]
    )


def to_look(outputs=("OUT",), **more):
    inputs = [pb_utils.Tensor("IN", np.array([5], np.int32))]
    return pb_utils.InferenceRequest(model_name="look", inputs=inputs, requested_output_names=list(outputs), **more)


def to_sequence(value, flags, correlation_id):
    inputs = [pb_utils.Tensor("IN", np.array([[value]], np.int32))]
    return pb_utils.InferenceRequest(
        model_name="sequence_oldest",
        inputs=inputs,
        requested_output_names=["OUT"],
        flags=flags,
        correlation_id=correlation_id,
    )


def to_sleep(model, seconds, **more):
    inputs = [pb_utils.Tensor("SECONDS", np.array([[seconds]], np.float32))]
    return pb_utils.InferenceRequest(model_name=model, inputs=inputs, requested_output_names=["OUT"], **more)


def shown(response):
    if response.has_error():
        return {"error": response.error().message(), "code": int(response.error().code())}
    tensors = {}
    for tensor in response.output_tensors():
        array = tensor.as_numpy()
        values = array.flatten().tolist()[:2]
        tensors[tensor.name()] = [
            str(array.dtype),
            list(array.shape),
            [v.decode() if isinstance(v, bytes) else v for v in values],
        ]
    return tensors


def tried(function, *arguments, **more):
    try:
        return shown_any(function(*arguments, **more))
    except pb_utils.TritonModelException as error:
        return {"raised": type(error).__name__, "text": str(error)}
    except (TypeError, ValueError, RuntimeError) as error:
        return {"raised": type(error).__name__}


def shown_any(value):
    if isinstance(value, pb_utils.InferenceResponse):
        return shown(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return [shown(response) for response in value]


def in_thread(function):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(tried(function)))
    thread.start()
    thread.join()
    return answers[0]


def behind(model, count, **more):
    """Keep a model busy for a while; return what the last of further requests is told."""
    slow = threading.Thread(target=to_sleep(model, 1.0).exec)
    slow.start()
    time.sleep(0.3)
    between = [threading.Thread(target=to_sleep(model, 0.0).exec) for _ in range(count - 1)]
    for thread in between:
        thread.start()
        time.sleep(0.1)
    told = tried(to_sleep(model, 0.0, **more).exec)
    for thread in (slow, *between):
        thread.join()
    return told


def twice(responses):
    return [[shown(response) for response in responses] for _ in range(2)]


# Each way is a function that returns what JSON has.
WAYS = {
    "exec": lambda: tried(to_add_sub().exec),
    "version": lambda: tried(to_add_sub(model_version=1).exec),
    "version-absent": lambda: tried(to_add_sub(model_version=9).exec),
    "version-zero": lambda: tried(to_add_sub(model_version=0).exec),
    "version-negative": lambda: tried(to_add_sub(model_version=-2).exec),
    "unknown-model": lambda: tried(to_add_sub(model="nobody").exec),
    "unknown-model-version": lambda: tried(to_add_sub(model="nobody", model_version=3).exec),
    "missing-input": lambda: tried(to_add_sub(pair()[:1]).exec),
    "unknown-input": lambda: tried(to_add_sub(pair(names=("INPUT0", "OTHER"))).exec),
    "input-twice": lambda: tried(to_add_sub(pair(names=("INPUT0", "INPUT0"))).exec),
    "no-inputs": lambda: tried(to_add_sub([]).exec),
    "wrong-type": lambda: tried(to_add_sub([pair()[0], pair(dtype=np.int32)[1]]).exec),
    "wrong-shape": lambda: tried(to_add_sub([pair()[0], pair((1, 4))[1]]).exec),
    "large-batch": lambda: tried(to_add_sub(pair((9, 16))).exec),
    "unknown-output": lambda: tried(to_add_sub(outputs=["NOBODY"]).exec),
    "no-outputs": lambda: tried(to_add_sub(outputs=[]).exec),
    "output-twice": lambda: tried(to_add_sub(outputs=["OUTPUT1", "OUTPUT1"]).exec),
    "one-output": lambda: tried(to_add_sub(outputs=["OUTPUT1"]).exec),
    "many-rows": lambda: tried(to_add_sub(pair((8, 16))).exec),
    "not-contiguous": lambda: tried(
        to_add_sub([pb_utils.Tensor(n, np.ones((16, 2), np.float32).T) for n in ("INPUT0", "INPUT1")]).exec
    ),
    "same-request-twice": lambda: (lambda request: [tried(request.exec), tried(request.exec)])(to_add_sub()),
    "id": lambda: tried(to_look(request_id="inner 1").exec),
    "correlation-id": lambda: tried(to_look(correlation_id=77).exec),
    "correlation-text": lambda: tried(to_look(correlation_id="seven").exec),
    "flags": lambda: tried(to_look(flags=START | END).exec),
    "timeout": lambda: tried(to_look(timeout=1234).exec),
    "timeout-large": lambda: tried(to_look(timeout=2**40).exec),
    "parameters": lambda: tried(to_look(parameters={"a": 1, "b": "two", "c": True, "d": -5}).exec),
    "parameters-large": lambda: tried(to_look(parameters={"a": 2**40}).exec),
    "parameters-empty": lambda: tried(to_look(parameters={}).exec),
    "parameters-none": lambda: tried(to_look(parameters=None).exec),
    "parameters-float": lambda: tried(to_look, parameters={"a": 1.5}),
    "parameters-list": lambda: tried(to_look, parameters=[1]),
    "parameters-reserved": lambda: tried(to_look(parameters={"priority": 3, "timeout": 5, "sequence_id": 9}).exec),
    "parameters-triton": lambda: tried(to_look(parameters={"triton_x": 3}).exec),
    "all-outputs": lambda: tried(to_look(outputs=[], request_id="x").exec),
    "memory": lambda: tried(
        to_add_sub(preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)).exec
    ),
    "texts": lambda: tried(
        pb_utils.InferenceRequest(
            model_name="text",
            inputs=[pb_utils.Tensor("IN", text("snow \u2603"))],
            requested_output_names=["OUT"],
        ).exec
    ),
    **{
        f"failing-{how}": lambda how=how: tried(to_failing(how).exec)
        for how in ("good", "NOT_FOUND", "CANCELLED", "default", "empty message", "raise", "no outputs")
    },
    "in-thread": lambda: in_thread(to_add_sub().exec),
    "decoupled-not-said": lambda: tried(to_repeat(2).exec),
    "decoupled-of-plain": lambda: tried(to_add_sub().exec, decoupled=True),
    **{f"decoupled-{count}": lambda count=count: tried(to_repeat(count).exec, decoupled=True) for count in (0, 1, 3)},
    **{
        f"decoupled-{how.replace(' ', '-')}": lambda how=how: tried(to_repeat(2, how).exec, decoupled=True)
        for how in ("no outputs", "with the last")
    },
    "decoupled-twice": lambda: twice(to_repeat(2).exec(decoupled=True)),
    "decoupled-unknown-model": lambda: tried(to_repeat(2, model="nobody").exec, decoupled=True),
    "decoupled-unknown-output": lambda: tried(to_repeat(2, outputs=["NOBODY"]).exec, decoupled=True),
    "decoupled-dropped": lambda: (to_repeat(3).exec(decoupled=True), tried(to_add_sub().exec))[1],
    "nested": lambda: tried(
        pb_utils.InferenceRequest(
            model_name="calls_pair", inputs=[pb_utils.Tensor("HOW", text("exec"))], requested_output_names=["OUT"]
        ).exec
    ),
    "sequence": lambda: [
        tried(to_sequence(1, START, 51).exec),
        tried(to_sequence(2, 0, 51).exec),
        tried(to_sequence(4, END, 51).exec),
    ],
    "sequence-no-start": lambda: tried(to_sequence(1, 0, 52).exec),
    "ensemble": lambda: tried(to_add_sub(pair(names=("A", "B")), ["SUM", "TWICE"], "ensemble").exec),
    "async-without-loop": lambda: tried(to_add_sub().async_exec),
    "queue-idle": lambda: tried(to_sleep("sleep_timeout", 0.0, timeout=50_000).exec),
    "queue-timeout": lambda: behind("sleep_timeout", 1),
    "queue-timeout-shorter": lambda: behind("sleep_timeout", 1, timeout=50_000),
    "queue-full": lambda: behind("sleep_queue", 2),
    "counted": lambda: [
        tried(to_add_sub(model="counted").exec),
        tried(to_add_sub(pair((4, 16)), model="counted").exec),
        tried(to_add_sub([], model="counted").exec),
    ],
    "counted-decoupled": lambda: tried(to_repeat(3, model="counted_repeat").exec, decoupled=True),
    "ready": lambda: [tried(pb_utils.is_model_ready, name) for name in ("add_sub", "nobody", "")],
    "ready-version": lambda: [tried(pb_utils.is_model_ready, "add_sub", v) for v in ("1", "9", "", "abc")],
    "ready-by-name": lambda: tried(pb_utils.is_model_ready, model_name="add_sub", model_version="1"),
    "ready-number": lambda: tried(pb_utils.is_model_ready, "add_sub", 1),
    "load-unknown": lambda: tried(pb_utils.load_model, "nobody"),
    "load-again": lambda: [tried(pb_utils.load_model, "plain"), tried(pb_utils.is_model_ready, "plain")],
    "load-config": lambda: [
        tried(
            pb_utils.load_model,
            model_name="calls_loaded",
            config=json.dumps({"backend": "python", "version_policy": {"specific": {"versions": [2]}}}),
        ),
        tried(pb_utils.is_model_ready, "calls_loaded", "2"),
        tried(pb_utils.is_model_ready, "calls_loaded", "1"),
    ],
    "load-files": lambda: [
        tried(
            pb_utils.load_model,
            model_name="calls_files",
            config=json.dumps(
                {
                    "backend": "python",
                    "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
                    "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
                }
            ),
            files={"file:1/model.py": b"class TritonPythonModel:\n    def execute(self, requests):\n        pass\n"},
        ),
        tried(pb_utils.is_model_ready, "calls_files"),
    ],
    "load-broken": lambda: tried(pb_utils.load_model, "refused_module_raises"),
    "unload": lambda: [
        tried(pb_utils.load_model, "halves"),
        tried(pb_utils.unload_model, "halves"),
        tried(pb_utils.is_model_ready, "halves"),
    ],
    "unload-unknown": lambda: tried(pb_utils.unload_model, "nobody"),
    "unload-dependents": lambda: tried(pb_utils.unload_model, model_name="halves", unload_dependents=True),
    **{
        f"made-{id}": lambda more=more: tried(pb_utils.InferenceRequest, **more)
        for id, more in {
            "without-model": {"inputs": [], "requested_output_names": []},
            "without-inputs": {"model_name": "add_sub", "requested_output_names": []},
            "without-outputs": {"model_name": "add_sub", "inputs": []},
            "id-number": {"model_name": "add_sub", "inputs": [], "requested_output_names": [], "request_id": 5},
            "correlation-float": {
                "model_name": "add_sub", "inputs": [], "requested_output_names": [], "correlation_id": 1.5,
            },
            "correlation-negative": {
                "model_name": "add_sub", "inputs": [], "requested_output_names": [], "correlation_id": -1,
            },
            "input-none": {"model_name": "add_sub", "inputs": [None], "requested_output_names": []},
            "input-array": {"model_name": "add_sub", "inputs": [np.zeros(1)], "requested_output_names": []},
            "output-empty": {"model_name": "add_sub", "inputs": [], "requested_output_names": [""]},
            "version-text": {
                "model_name": "add_sub", "inputs": [], "requested_output_names": [], "model_version": "1",
            },
            "priority": {"model_name": "add_sub", "inputs": [], "requested_output_names": [], "priority": 1},
        }.items()
    },
    "look-at-own": lambda: (
        lambda r: [
            *(r.request_id(), r.correlation_id(), r.flags(), r.timeout(), json.loads(r.parameters() or "{}")),
            sorted(r.requested_output_names()),
        ]
    )(to_add_sub(request_id="a", correlation_id=4, flags=1, timeout=9, parameters={"k": 1})),
}  # fmt: skip


async def gathered(count):
    answers = await asyncio.gather(*(to_add_sub().async_exec() for _ in range(count)))
    return [shown(answer) for answer in answers]


async def three():
    requests = [to_add_sub(), to_look(request_id="b"), to_failing("NOT_FOUND")]
    return [shown(answer) for answer in await asyncio.gather(*(request.async_exec() for request in requests))]


async def of_decoupled():
    streams = await asyncio.gather(*(to_repeat(count).async_exec(decoupled=True) for count in (0, 1, 3)))
    return [[shown(answer) for answer in stream] for stream in streams]


async def mixed():
    waiting = asyncio.ensure_future(to_sleep("sleep", 0.2).async_exec())
    first = tried(to_add_sub().exec)
    return [first, shown(await waiting)]


async def unknown():
    return shown(await to_add_sub(model="nobody").async_exec())


async def decoupled_not_said():
    return shown(await to_repeat(1).async_exec())


ASYNC_WAYS = {
    "one": lambda: gathered(1),
    "twenty": lambda: gathered(20),
    "three": three,
    "decoupled": of_decoupled,
    "decoupled-not-said": decoupled_not_said,
    "exec-amid": mixed,
    "unknown-model": unknown,
}


def answer(value):
    out = json.dumps(value, sort_keys=True).encode()
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([out], dtype=np.object_))])


def way_of(request):
    return pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy().flatten()[0].decode()


class TritonPythonModel:
    """Asks other models in the way that HOW says; OUT is a JSON text of what came back.

    The config's parameter "how": "async" for an execute that is a coroutine, "early" for asking in initialize.
    """

    def initialize(self, args):
        config = json.loads(args["model_config"])
        how = config.get("parameters", {}).get("how", {}).get("string_value", "")
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        if how == "async":
            self.execute = self.execute_async
        if how == "early":
            early = [tried(to_add_sub().exec), tried(to_repeat(1).exec, decoupled=True), WAYS["ready"]()]
            early.append(tried(pb_utils.load_model, "calls_loaded_early"))
            self.execute = lambda requests: [answer(early) for _ in requests]

    def execute(self, requests):
        if not self.is_decoupled:
            return [answer(self.asked(way_of(request))) for request in requests]
        for request in requests:
            how, sender = way_of(request), request.get_response_sender()
            if how.startswith("thread "):
                threading.Thread(target=self.send, args=(sender, how[7:])).start()
            else:
                self.send(sender, how)

    async def execute_async(self, requests):
        if not self.is_decoupled:
            return [answer(await ASYNC_WAYS[way_of(request)]()) for request in requests]
        for request in requests:
            value = answer(await ASYNC_WAYS[way_of(request)]())
            request.get_response_sender().send(value, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def asked(self, how):
        return WAYS[how]() if how in WAYS else asyncio.run(ASYNC_WAYS[how]())

    def send(self, sender, how):
        sender.send(answer(self.asked(how)), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
