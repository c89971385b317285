"""What the node answers is what the engine answers when it is called directly: every byte, however requests batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from serving_node.core.tensor import NUMPY_DTYPES, Tensor
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer, load

MAX = 16
# rows of the requests that are sent at once, each list makes one batch
BATCHES = {"1": [1], "7": [2, 5], "max": [1, 3, 5, 7]}
ELEMENTS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}
CALCULATED = {"UINT8", "UINT32", "UINT64", "INT8", "INT32", "INT64", "FP16", "FP32", "FP64"}

Engine = Callable[[Path, Mapping[str, np.ndarray]], np.ndarray]


def onnxruntime_directly(path: Path, feed: Mapping[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(["y"], dict(feed))[0]


def openvino_directly(path: Path, feed: Mapping[str, np.ndarray]) -> np.ndarray:
    import openvino

    compiled = openvino.Core().compile_model(
        str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    )
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        array = np.ascontiguousarray(feed[port.any_name])
        request.set_tensor(port, openvino.Tensor(array, openvino.Shape(array.shape), port.element_type))
    request.infer()
    return request.get_tensor("y").data.copy()


ENGINES: dict[str, Engine] = {"onnxruntime": onnxruntime_directly, "openvino": openvino_directly}


def config(engine: str, *, more: str = "") -> str:
    return (
        f'backend: "{engine}" default_model_filename: "model.onnx" max_batch_size: {MAX} {more}'
        " dynamic_batching { max_queue_delay_microseconds: 200000 }"
        " instance_group { kind: KIND_CPU count: 1 }"
        ' parameters { key: "intra_op_thread_count" value { string_value: "1" } }'
        ' parameters { key: "INFERENCE_NUM_THREADS" value { string_value: "1" } }'
    )


def values(datatype: str, shape: tuple[int, ...]) -> np.ndarray:
    generator = np.random.default_rng(3)
    if datatype == "BYTES":
        words = [text.encode() for text in ("", "a", "Zürich", "北京", "a\x00b", "x" * 300)]
        return generator.choice(np.array(words, dtype=object), shape)
    if datatype == "BOOL":
        return generator.integers(0, 2, shape).astype(np.bool_)
    if datatype == "BF16":  # no not-a-number, whose bits an engine may change
        return generator.integers(0, 0x7F00, shape).astype(np.uint16)
    dtype = NUMPY_DTYPES[datatype]
    if datatype.startswith("FP"):
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def save_one_type(path: Path, datatype: str) -> Path:
    """``y`` is ``x`` + ``x`` where engines add elements of this type, else ``x``: [N, K]."""
    element = ELEMENTS[datatype]
    if datatype not in CALCULATED:
        return onnx_models.save_identity(path, element, ["N", "K"])
    sides = [[onnx_models.tensor(name, element, ["N", "K"])] for name in ("x", "y")]
    return onnx_models.save(path, [helper.make_node("Add", ["x", "x"], ["y"])], *sides)


@pytest.mark.parametrize(
    ("engine", "datatype"),
    [(engine, datatype) for engine in ENGINES for datatype in ELEMENTS if (engine, datatype) != ("openvino", "BYTES")],
)
async def test_every_type_at_every_batch_equals_the_engine(tmp_path: Path, engine: str, datatype: str) -> None:
    path = save_one_type(tmp_path / "1" / "model.onnx", datatype)
    model = await load(path.parent, config(engine))
    for rows in BATCHES.values():
        for width in (1, 5, 0) if datatype == "FP32" else (5,):  # the second dimension is dynamic, and may be empty
            data = values(datatype, (sum(rows), width))
            parts = np.split(data, np.cumsum(rows)[:-1])
            responses = await infer(model, *([Tensor.from_numpy("x", part, datatype)] for part in parts))
            got = np.concatenate([arrays(response)["y"] for response in responses])
            expected = expected_of(engine, path, datatype, data)
            assert [len(arrays(response)["y"]) for response in responses] == rows
            assert got.dtype == NUMPY_DTYPES[datatype]
            assert as_bytes(got) == as_bytes(expected)
    await model.close()


def expected_of(engine: str, path: Path, datatype: str, data: np.ndarray) -> np.ndarray:
    if datatype == "BF16" and engine == "onnxruntime":
        return data  # an identity; its Python binding knows no such arrays
    if datatype == "BYTES":
        return ENGINES[engine](path, {"x": np.vectorize(bytes.decode, otypes=[object])(data)})
    return ENGINES[engine](path, {"x": data})


def as_bytes(array: np.ndarray) -> Any:
    if array.dtype == np.object_:
        return [item if isinstance(item, bytes) else item.encode() for item in array.reshape(-1)]
    return array.shape, array.tobytes()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rows", BATCHES.values(), ids=list(BATCHES))
async def test_a_network_equals_the_engine_bit_by_bit(tmp_path: Path, engine: str, rows: list[int]) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx", features=64, hidden=128)
    model = await load(path.parent, config(engine))
    data = values("FP32", (sum(rows), 64))
    parts = np.split(data, np.cumsum(rows)[:-1])
    responses = await infer(model, *([Tensor.from_numpy("x", part, "FP32")] for part in parts))
    got = np.concatenate([arrays(response)["y"] for response in responses])
    assert model.statistics.execution_count == 1, "the requests are one batch, as in the direct call"
    assert got.tobytes() == ENGINES[engine](path, {"x": data}).tobytes()
    await model.close()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_worker_process_answers_like_a_thread(tmp_path: Path, engine: str) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx", features=64, hidden=128)
    hosted = 'parameters { key: "flotilla.host" value { string_value: "process" } }'
    model = await load(path.parent, config(engine, more=hosted))
    data = values("FP32", (7, 64))
    responses = await infer(model, *([Tensor.from_numpy("x", part, "FP32")] for part in (data[:2], data[2:])))
    got = np.concatenate([arrays(response)["y"] for response in responses])
    assert got.tobytes() == ENGINES[engine](path, {"x": data}).tobytes()
    await model.close()


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_engines_agree_with_numpy(tmp_path: Path, engine: str) -> None:
    path = onnx_models.save_add_sub(tmp_path / "1" / "model.onnx", TensorProto.FLOAT)
    model = await load(path.parent, config(engine))
    a, b = values("FP32", (3, 16)), values("FP32", (3, 16)) * 2
    inputs = [Tensor.from_numpy("INPUT0", a, "FP32"), Tensor.from_numpy("INPUT1", b, "FP32")]
    (response,) = await infer(model, inputs)
    assert arrays(response)["OUTPUT0"].tobytes() == (a + b).tobytes()
    assert arrays(response)["OUTPUT1"].tobytes() == (a - b).tobytes()
    await model.close()


@pytest.mark.parametrize("engine", ENGINES)
async def test_answers_do_not_change_when_the_next_batch_runs(tmp_path: Path, engine: str) -> None:
    path = onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.FLOAT, ["N", "K"])
    model = await load(path.parent, config(engine))
    first, second = values("FP32", (4, 9)), values("FP32", (4, 9)) + 1
    (kept,) = await infer(model, [Tensor.from_numpy("x", first, "FP32")])
    await infer(model, [Tensor.from_numpy("x", second, "FP32")])
    assert arrays(kept)["y"].tobytes() == first.tobytes()
    await model.close()
