import asyncio
import importlib
import inspect
import json
import os
import sys

import numpy as np
import triton_python_backend_utils as pb_utils

KINDS = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"]
COUNTER, GAUGE, HISTOGRAM = "COUNTER", "GAUGE", "HISTOGRAM"
KEPT = []
OWN = {}


def kind_of(name):
    # not where the module is imported: Triton puts them there a moment later
    return getattr(pb_utils.MetricFamily, name)


def shown(value):
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), [shown(one) for one in value.flatten().tolist()[:6]]]
    if isinstance(value, pb_utils.Tensor):
        return [value.name(), list(value.shape()), value.is_cpu()]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (set, frozenset)):
        return sorted(map(shown, value))
    if isinstance(value, (list, tuple)):
        return [shown(one) for one in value]
    if isinstance(value, dict):
        return {str(key): shown(one) for key, one in value.items()}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return repr(value) if isinstance(value, float) else int(value)
    return f"<{type(value).__name__}>"


def tried(function, *arguments, **more):
    try:
        return shown(function(*arguments, **more))
    except pb_utils.TritonModelException as error:
        return {"raised": "TritonModelException", "text": str(error)}
    except Exception as error:
        return {"raised": type(error).__name__}


def family(name, kind, description="of the contract"):
    made = pb_utils.MetricFamily(name=name, description=description, kind=kind_of(kind))
    KEPT.append(made)
    return made


def series(name, kind, labels, buckets=None):
    more = {} if buckets is None else {"buckets": buckets}
    made = family(name, kind).Metric(labels={**OWN, **labels}, **more)
    KEPT.append(made)
    return made


def deleted():
    lost = pb_utils.MetricFamily(name="contract_lost", description="", kind=kind_of(COUNTER))
    metric = lost.Metric(labels={"model": "contract"})
    del lost
    deeds = [tried(metric.increment, 1), tried(metric.set, 1), tried(metric.observe, 1), tried(metric.value)]
    return deeds


# What the server refuses is not asked for here: the reference server now and then ends over it.


def counters():
    metric = series("contract_count", COUNTER, {"by": "counters"})
    return [tried(metric.increment, 2.5), tried(metric.increment, 0), tried(metric.value)]


def gauges():
    metric = series("contract_gauge", GAUGE, {"by": "gauges"})
    deeds = [tried(metric.set, -4), tried(metric.increment, 1.5), tried(metric.increment, -8), tried(metric.value)]
    return [*deeds, tried(metric.set, 1e300), tried(metric.value), tried(metric.set, "x")]


def histograms():
    metric = series("contract_times", HISTOGRAM, {"by": "histograms"}, [0.1, 1, 2.5])
    return [tried(metric.observe, value) for value in (0.05, 0.1, 0.5, 2, 99)]


def shared():
    first, second = (series("contract_shared", COUNTER, {"by": "shared"}) for _ in range(2))
    first.increment(2)
    second.increment(3)
    return [first.value(), second.value()]


async def in_coroutine():
    metric = series("contract_coroutine", GAUGE, {"by": "coroutine"})
    await asyncio.sleep(0)
    metric.increment(4)
    return metric.value()


def bad_metrics():
    taken = family("contract_taken", COUNTER)
    times = family("contract_bad_times", HISTOGRAM)
    return {
        "kind of no kind": tried(pb_utils.MetricFamily, name="contract_a", description="", kind=7),
        "name of no text": tried(pb_utils.MetricFamily, name=5, description="", kind=kind_of(COUNTER)),
        "nothing": tried(pb_utils.MetricFamily),
        "labels of no dictionary": tried(taken.Metric, labels=5),
        "buckets of a counter": tried(taken.Metric, buckets=[1]),
        "empty buckets of a counter": tried(taken.Metric, buckets=[]),
        "no buckets": tried(times.Metric, labels={}),
        "buckets in a tuple": tried(times.Metric, buckets=(1, 2)),
    }


def tensors():
    made = {
        kind: pb_utils.Tensor("A", np.ones((2, 3), pb_utils.triton_string_to_numpy(f"TYPE_{kind}"))) for kind in KINDS
    }
    return {
        "shape": [list(tensor.shape()) for tensor in made.values()],
        "cpu": [tensor.is_cpu() for tensor in made.values()],
        "array": [tensor.as_numpy() for tensor in made.values()],
    }


def dlpack():
    """Between tensors of the module only: the reference's process does not survive arrays of newer numpys."""
    tensor = pb_utils.Tensor.from_dlpack("A", pb_utils.Tensor("B", np.arange(6, dtype=np.float32).reshape(2, 3)))
    again = pb_utils.Tensor.from_dlpack("C", tensor.to_dlpack())
    given = {kind: pb_utils.Tensor("A", np.ones(2, pb_utils.triton_string_to_numpy(f"TYPE_{kind}"))) for kind in KINDS}
    return {
        "values": again.as_numpy(),
        "name": again.name(),
        "device": list(map(int, tensor.__dlpack_device__())),
        "without a name": tried(pb_utils.Tensor.from_dlpack, "", tensor),
        "texts": tried(pb_utils.Tensor("A", np.array([b"x"], object)).to_dlpack),
        "kinds": {
            kind: tried(lambda one=one: pb_utils.Tensor.from_dlpack("A", one).as_numpy())
            for kind, one in given.items()
            if kind != "BOOL"
        },
    }


def bad_tensors():
    return {
        "empty name": tried(pb_utils.Tensor, "", np.zeros(1)),
        "no array": tried(pb_utils.Tensor, "A", [1]),
        "no name": tried(pb_utils.Tensor, None, np.zeros(1)),
        "complex": tried(pb_utils.Tensor, "A", np.zeros(1, np.complex64)),
        "big-endian": tried(pb_utils.Tensor, "A", np.zeros(1, ">f4")),
        "texts of numpy": tried(lambda: pb_utils.Tensor("A", np.array(["a"])).as_numpy()),
        "bytes of numpy": tried(lambda: pb_utils.Tensor("A", np.array([b"a"])).as_numpy()),
        "scalar": tried(lambda: pb_utils.Tensor("A", np.array(4.0)).as_numpy()),
        "empty": tried(lambda: pb_utils.Tensor("A", np.zeros((0, 2))).as_numpy()),
        "turned": tried(lambda: pb_utils.Tensor("A", np.arange(4).reshape(2, 2).T).as_numpy()),
    }


def converting():
    texts = np.array([b"a\0b", "snow \u2603".encode(), b""], dtype=object)
    packed = pb_utils.serialize_byte_tensor(texts)
    config = {"input": [{"name": "I", "dims": [1]}], "output": [{"name": "O"}]}
    return {
        "packed": bytes(packed),
        "unpacked": pb_utils.deserialize_bytes_tensor(bytes(packed)),
        "packed matrix": bytes(pb_utils.serialize_byte_tensor(np.array([[b"a"], [b"bc"]], dtype=object))),
        "packed nothing": tried(pb_utils.serialize_byte_tensor, np.array([], dtype=object)),
        "packed numbers": tried(pb_utils.serialize_byte_tensor, np.zeros(2)),
        "packed mixed": tried(lambda: bytes(pb_utils.serialize_byte_tensor(np.array(["a", 1, b"b"], dtype=object)))),
        "to numpy": {
            kind: str(np.dtype(pb_utils.triton_string_to_numpy(f"TYPE_{kind}"))) for kind in [*KINDS, "STRING"]
        },
        "unknown to numpy": tried(pb_utils.triton_string_to_numpy, "TYPE_NOTHING"),
        "by number": [str(np.dtype(pb_utils.triton_to_numpy_type(n))) for n in range(1, 14)],
        "unknown number": [tried(pb_utils.triton_to_numpy_type, n) for n in (0, 15, "x")],
        "of numpy": [pb_utils.numpy_to_triton_type(pb_utils.triton_to_numpy_type(n)) for n in range(1, 14)],
        "unknown of numpy": tried(pb_utils.numpy_to_triton_type, np.complex64),
        "input": pb_utils.get_input_config_by_name(config, "I"),
        "no input": pb_utils.get_input_config_by_name(config, "X"),
        "output": pb_utils.get_output_config_by_name(config, "O"),
        "no inputs": tried(pb_utils.get_input_config_by_name, {}, "I"),
        "decoupled": [
            pb_utils.using_decoupled_model_transaction_policy(one)
            for one in ({}, {"model_transaction_policy": {"decoupled": True}})
        ],
    }


def errors():
    kinds = [
        "UNKNOWN",
        "INTERNAL",
        "NOT_FOUND",
        "INVALID_ARG",
        "UNAVAILABLE",
        "UNSUPPORTED",
        "ALREADY_EXISTS",
        "CANCELLED",
    ]
    return {
        "codes": [int(getattr(pb_utils.TritonError, kind)) for kind in kinds],
        "texts": [str(getattr(pb_utils.TritonError, kind)) for kind in kinds],
        "default": int(pb_utils.TritonError("x").code()),
        "given": [int(pb_utils.TritonError("x", pb_utils.TritonError.NOT_FOUND).code())],
        "by name": pb_utils.TritonError(message="m", code=pb_utils.TritonError.CANCELLED).message(),
        "number": tried(pb_utils.TritonError, 5),
        "nothing": tried(pb_utils.TritonError),
        "exception": str(pb_utils.TritonModelException("text")),
        "base": [issubclass(pb_utils.TritonModelException, Exception)],
    }


def responses():
    tensor = pb_utils.Tensor("A", np.zeros(1))
    return {
        "plain": [
            len(pb_utils.InferenceResponse([tensor]).output_tensors()),
            pb_utils.InferenceResponse([]).has_error(),
        ],
        "by name": pb_utils.InferenceResponse(output_tensors=[tensor]).output_tensors()[0].name(),
        "error": pb_utils.InferenceResponse(error=pb_utils.TritonError("bad")).error().message(),
        "has error": pb_utils.InferenceResponse(error=pb_utils.TritonError("bad")).has_error(),
        "no error": tried(pb_utils.InferenceResponse([]).error),
        "none": tried(pb_utils.InferenceResponse, [None]),
        "array": tried(pb_utils.InferenceResponse, [np.zeros(1)]),
        "text as error": tried(pb_utils.InferenceResponse, [], "bad"),
        "found": pb_utils.get_output_tensor_by_name(pb_utils.InferenceResponse([tensor]), "A").name(),
        "not found": pb_utils.get_output_tensor_by_name(pb_utils.InferenceResponse([tensor]), "B"),
    }


def completing():
    def config(**more):
        text = json.dumps({"name": "m", "max_batch_size": 0, "input": [], "output": [], **more})
        return pb_utils.ModelConfig(text)

    def done(deed, **more):
        made = config(**more)
        return tried(lambda: (deed(made), made.as_dict())[1])

    one = {"name": "A", "data_type": "TYPE_FP32", "dims": [4]}
    return {
        "nothing": done(lambda c: None),
        "input": done(lambda c: c.add_input(dict(one))),
        "input twice": done(lambda c: (c.add_input(dict(one)), c.add_input({**one, "dims": [5]}))),
        "input again": done(lambda c: (c.add_input(dict(one)), c.add_input(dict(one)))),
        "optional": done(lambda c: c.add_input({**one, "optional": True})),
        "more": done(lambda c: c.add_input({**one, "extra": 1})),
        "no name": done(lambda c: c.add_input({"data_type": "TYPE_FP32", "dims": [4]})),
        "no type": done(lambda c: c.add_output({"name": "A", "dims": [4]})),
        "no dims": done(lambda c: c.add_output({"name": "A", "data_type": "TYPE_FP32"})),
        "batch": done(lambda c: c.set_max_batch_size(8)),
        "smaller batch": done(lambda c: c.set_max_batch_size(2), max_batch_size=4),
        "dynamic": done(lambda c: c.set_dynamic_batching()),
        "dynamic beside sequences": done(lambda c: c.set_dynamic_batching(), sequence_batching={}),
        "decoupled": done(lambda c: c.set_model_transaction_policy({"decoupled": True})),
        "another policy": done(lambda c: c.set_model_transaction_policy({"other": True})),
    }


def logging():
    logger = pb_utils.Logger
    return {
        "written": [
            tried(one, "from the contract")
            for one in (logger.log_info, logger.log_warn, logger.log_error, logger.log_verbose, logger.log)
        ],
        "levels": [int(one) for one in (logger.INFO, logger.WARNING, logger.ERROR, logger.VERBOSE)],
        "texts": [str(one) for one in (logger.INFO, logger.VERBOSE)],
        "level": [tried(logger.log, "x", logger.WARNING), tried(logger.log, message="x", level=logger.VERBOSE)],
        "a number as text": [tried(logger.log, 5), tried(logger.log_info, 5)],
        "a number as level": tried(logger.log, "x", 17),
        "nothing": tried(logger.log_info),
    }


def surface():
    """What models of the wild use; more may be there."""
    names = ["InferenceRequest", "InferenceResponse", "Tensor", "Logger", "ModelConfig", "MetricFamily", "TritonError"]
    members = {name: [one for one in dir(getattr(pb_utils, name)) if not one.startswith("_")] for name in names}
    members["InferenceResponse"] = [one for one in members["InferenceResponse"] if one != "parameters"]
    members["module"] = [
        one
        for one in (
            *("PreferredMemory", "TRITONSERVER_MEMORY_CPU", "TRITONSERVER_MEMORY_GPU"),
            *("TRITONSERVER_REQUEST_FLAG_SEQUENCE_START", "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END"),
            *("TRITONSERVER_REQUEST_RELEASE_ALL", "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE"),
            *("TRITONSERVER_RESPONSE_COMPLETE_FINAL", "TRITON_STRING_TO_NUMPY", "TritonModelException"),
            *("get_model_dir", "is_model_ready", "load_model", "unload_model", "numpy_to_triton_type"),
        )
        if hasattr(pb_utils, one)
    ]
    return members


def constants():
    names = [name for name in dir(pb_utils) if name.startswith("TRITONSERVER_")]
    return {
        **{name: int(getattr(pb_utils, name)) for name in names},
        "kinds": [int(kind_of(kind)) for kind in (COUNTER, GAUGE, HISTOGRAM)],
        "memory": [
            tried(pb_utils.PreferredMemory, *arguments)
            for arguments in ((pb_utils.TRITONSERVER_MEMORY_CPU,), (pb_utils.TRITONSERVER_MEMORY_GPU, 1), (), (5,))
        ],
    }


def of_request(request):
    return {
        "context": tried(request.trace().get_context),
        "trace": tried(request.trace),
        "flags": [
            tried(request.set_flags, 3),
            request.flags(),
            tried(request.set_flags, -1),
            tried(request.set_flags, "x"),
        ],
        "release": [tried(request.set_release_flags, one) for one in (1, 7, "x")],
        "cancelled": [request.is_cancelled(), request.get_response_sender().is_cancelled()],
        "input": [pb_utils.get_input_tensor_by_name(request, name) for name in ("HOW", "NOBODY")],
        "writable": tried(lambda: pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy().flags.writeable),
        "attributes": [hasattr(request, name) for name in ("model_name", "model_version", "preferred_memory")],
        "coroutines": [inspect.iscoroutinefunction(request.exec)],
    }


def imported():
    import beside
    import beside_model

    here = os.path.dirname(os.path.abspath(__file__))
    return {
        "words": [beside.WORD, beside_model.WORD],
        "relative": tried(lambda: importlib.import_module(".beside", __package__).WORD),
        "name": __name__,
        "package": __package__,
        "module": sys.modules[__name__].__file__ == os.path.join(here, "model.py"),
        "folder": pb_utils.get_model_dir() == here,
        "on the path": [here in sys.path, os.path.dirname(here) in sys.path],
    }


# Each way is a function that returns what JSON has.
WAYS = {
    "counters": counters,
    "gauges": gauges,
    "histograms": histograms,
    "deleted": deleted,
    "shared": shared,
    "in-coroutine": lambda: asyncio.run(in_coroutine()),
    "bad-metrics": bad_metrics,
    "tensors": tensors,
    "dlpack": dlpack,
    "bad-tensors": bad_tensors,
    "converting": converting,
    "errors": errors,
    "responses": responses,
    "completing": completing,
    "logging": logging,
    "surface": surface,
    "constants": constants,
    "imported": imported,
}


class TritonPythonModel:
    """Uses the module in the way that HOW says; OUT is a JSON text of what came of it."""

    def initialize(self, args):
        self.args = args
        OWN["model"] = args["model_name"]
        self.family = pb_utils.MetricFamily(name="contract_early", description="made early", kind=kind_of(COUNTER))
        self.metric = self.family.Metric(labels={"model": args["model_name"], "by": "initialize"})
        self.metric.increment(1)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        how = pb_utils.get_input_tensor_by_name(request, "HOW").as_numpy().flatten()[0].decode()
        if how == "request":
            value = shown(of_request(request))
        elif how == "arguments":
            value = {key: type(one).__name__ for key, one in self.args.items()}
        else:
            value = shown(WAYS[how]())
        out = json.dumps(value, sort_keys=True).encode()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([out], dtype=np.object_))])

    def finalize(self):
        self.metric.increment(1)
