"""The models that Triton's public example programs ask for, as Python models of ours.

``write(folder, names)`` makes a repository of them; run as a program it makes one for a node started by hand:
``python tests/serving_node/clients/models.py FOLDER [NAME...]``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, indent


@dataclass(frozen=True)
class Model:
    """A config, the file of a Python model, and files beside them."""

    config: str
    code: str
    files: Mapping[str, str] = field(default_factory=dict)


def _tensor(name: str, kind: str, dims: str, more: str = "") -> str:
    return f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] {more} }}'


def _config(batch: int, inputs: list[tuple[str, ...]], outputs: list[tuple[str, ...]], more: str = "") -> str:
    lines = ['backend: "python"', f"max_batch_size: {batch}"]
    lines += [f"input [ {', '.join(_tensor(*tensor) for tensor in inputs)} ]"]
    lines += [f"output [ {', '.join(_tensor(*tensor) for tensor in outputs)} ]"]
    return "\n".join([*lines, more]) + "\n"


def _code(body: str, more: str = "") -> str:
    """Return a model whose ``answer(self, request, get)`` returns the response's tensors by their names."""
    head = """
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            return [self.respond(request) for request in requests]

        def respond(self, request):
            def get(name):
                return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

            try:
                tensors = self.answer(request, get)
            except ValueError as error:
                return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
            return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
    """
    return dedent(head).lstrip() + indent(dedent(more), "    ") + "\n" + indent(dedent(body).strip(), "    ") + "\n"


_ADD_SUB = """
def answer(self, request, get):
    a, b = get("INPUT0"), get("INPUT1")
    return {"OUTPUT0": a + b, "OUTPUT1": a - b}
"""

# A load with a config override of one field replaces the whole config: then the model itself names its tensors.
_COMPLETES = """
@staticmethod
def auto_complete_config(config):
    for number in (0, 1):
        tensor = {"data_type": "TYPE_%s", "dims": [16]}
        config.add_input({"name": f"INPUT{number}", **tensor})
        config.add_output({"name": f"OUTPUT{number}", **tensor})
    return config
"""

_ADD_SUB_TEXTS = """
def answer(self, request, get):
    a, b = get("INPUT0").astype(np.int64), get("INPUT1").astype(np.int64)

    def texts(numbers):
        flat = np.array([str(number).encode() for number in numbers.flat], np.object_)
        return flat.reshape(numbers.shape)

    return {"OUTPUT0": texts(a + b), "OUTPUT1": texts(a - b)}
"""

_IDENTITY = """
def answer(self, request, get):
    return {"OUTPUT0": get("INPUT0")}
"""

# Remembers sequences itself: which are open, by correlation id.
_SEQUENCE = """
def answer(self, request, get):
    key, flags = request.correlation_id(), request.flags()
    start = bool(flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
    end = bool(flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
    if start:
        self.sums[key] = 0
    elif key not in self.sums:
        raise ValueError(f"sequence {key} has not been started")
    value = self.step(get("INPUT"), key, start)
    if end:
        value = value + self.last(key)
        del self.sums[key]
    return {"OUTPUT": value.astype(np.int32)}
"""

_STARTS_PLUS_ONE = """
def initialize(self, args):
    self.sums = {}

def step(self, value, key, start):
    return value + 1 if start else value

def last(self, key):
    return %s
"""

_ACCUMULATES = """
def initialize(self, args):
    self.sums = {}

def step(self, value, key, start):
    self.sums[key] = self.sums[key] + value
    return self.sums[key]

def last(self, key):
    return int(key)
"""

_REPEAT = """
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            values, delays, wait = (
                pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "DELAY", "WAIT")
            )
            sender = request.get_response_sender()
            for value, delay in zip(values, delays):
                time.sleep(int(delay) / 1000)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value.reshape(1))]))
            time.sleep(int(wait[0]) / 1000)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_SQUARE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            for _ in range(int(number[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", number)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_CLASSES = """
def answer(self, request, get):
    return {"fc6_1": np.linspace(0, 1, 1000, dtype=np.float32).reshape(1000, 1, 1)}
"""

_OLDEST = "oldest { max_candidate_sequences: 64 preferred_batch_size: [ 4, 8 ] }"
_DECOUPLED = "model_transaction_policy { decoupled: true }"


def _add_sub(kind: str, code: str = _ADD_SUB) -> Model:
    inputs, outputs = ([(f"{side}PUT{number}", kind, "16") for number in (0, 1)] for side in ("IN", "OUT"))
    return Model(_config(8, [*inputs], [*outputs]), _code(code, _COMPLETES % kind))


def _sequence(more: str, strategy: str, id_type: str = "") -> Model:
    controls = [(name, "int32_false_true: [ 0, 1 ]") for name in ("START", "END", "READY")]
    controls += [("CORRID", f"data_type: TYPE_{id_type}")] if id_type else []
    inputs = [
        f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{name} {how} }} }}'
        for name, how in controls
    ]
    batching = f"sequence_batching {{ max_sequence_idle_microseconds: 60000000 {strategy} {' '.join(inputs)} }}"
    return Model(_config(8, [("INPUT", "INT32", "1")], [("OUTPUT", "INT32", "1")], batching), _code(_SEQUENCE, more))


def _identity(kind: str) -> Model:
    return Model(_config(8, [("INPUT0", kind, "-1")], [("OUTPUT0", kind, "-1")]), _code(_IDENTITY))


MODELS = {
    "simple": _add_sub("INT32"),
    "simple_int8": _add_sub("INT8"),
    "simple_string": _add_sub("STRING", _ADD_SUB_TEXTS),
    "simple_identity": _identity("STRING"),
    "simple_sequence": _sequence(_STARTS_PLUS_ONE % "0", "direct { }"),
    "simple_dyna_sequence": _sequence(_STARTS_PLUS_ONE % "int(key)", _OLDEST, "UINT64"),
    "simple_string_dyna_sequence": _sequence(_ACCUMULATES, _OLDEST, "STRING"),
    "custom_identity_int32": _identity("INT32"),
    "identity_fp32": _identity("FP32"),
    "repeat_int32": Model(
        _config(
            0,
            [("IN", "INT32", "-1"), ("DELAY", "UINT32", "-1"), ("WAIT", "UINT32", "1")],
            [("OUT", "INT32", "1")],
            _DECOUPLED,
        ),
        _REPEAT,
    ),
    "square_int32": Model(_config(0, [("IN", "INT32", "1")], [("OUT", "INT32", "1")], _DECOUPLED), _SQUARE),
    "densenet_onnx": Model(
        _config(
            0,
            [("data_0", "FP32", "3, 224, 224", "format: FORMAT_NCHW")],
            [("fc6_1", "FP32", "1000, 1, 1", 'label_filename: "labels.txt"')],
        ),
        _code(_CLASSES),
        {"labels.txt": "".join(f"class {number}\n" for number in range(1000))},
    ),
}


def write(folder: Path, names: Iterable[str] = tuple(MODELS)) -> Path:
    """Write models, all unless named, into a folder and return it."""
    for name in names:
        version = folder / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (folder / name / "config.pbtxt").write_text(MODELS[name].config)
        (version / "model.py").write_text(MODELS[name].code)
        for file, text in MODELS[name].files.items():
            (folder / name / file).write_text(text)
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2:] or tuple(MODELS))
