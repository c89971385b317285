from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from serving_node.backends.loader import Backends
from serving_node.backends.onnxruntime.backend import GpuInstance, signature_of
from serving_node.backends.onnxruntime.settings import SessionSettings
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import complete, parse_pbtxt
from serving_node.core.backend import ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer, load


async def test_autocompleted_model_answers_bit_equal_to_a_direct_run(tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    model = await load(path.parent)
    assert model.config.max_batch_size == 4
    assert model.config.HasField("dynamic_batching")
    assert [tensor.shape for tensor in model.metadata.inputs] == [(-1, 16)]

    data = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)
    (response,) = await infer(model, [Tensor.from_numpy("x", data, "FP32")])
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["y"], {"x": data})[0]
    assert arrays(response)["y"].tobytes() == expected.tobytes()
    await model.close()


@pytest.mark.parametrize(("text", "size"), [("16", 16), ("1", 1), ("0", 0)])
async def test_completion_sets_the_batch_size_of_the_command_line(tmp_path: Path, text: str, size: int) -> None:
    folder = onnx_models.save_mlp(tmp_path / "1" / "model.onnx").parent
    model = await load(folder, **{"default-max-batch-size": text})
    assert (model.config.max_batch_size, model.config.HasField("dynamic_batching")) == (size, size > 1)
    assert list(model.config.input[0].dims) == ([16] if size else [-1, 16])
    await model.close()


async def test_a_batch_size_of_the_command_line_must_be_a_number(tmp_path: Path) -> None:
    folder = onnx_models.save_mlp(tmp_path / "1" / "model.onnx").parent
    with pytest.raises(InferenceError, match="default-max-batch-size must be a number, not 'many'"):
        await load(folder, **{"default-max-batch-size": "many"})


async def test_requests_are_batched_and_split_bit_equal(tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    config = 'backend: "onnxruntime" max_batch_size: 16 dynamic_batching { } instance_group { count: 1 kind: KIND_CPU }'
    model = await load(path.parent, config)
    data = np.random.default_rng(1).standard_normal((12, 16)).astype(np.float32)
    parts = [data[0:2], data[2:3], data[3:8], data[8:12]]
    responses = await infer(model, *([Tensor.from_numpy("x", part, "FP32")] for part in parts))

    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(["y"], {"x": data})[0]
    joined = np.concatenate([arrays(response)["y"] for response in responses])
    assert joined.tobytes() == expected.tobytes()
    assert (model.statistics.inference_count, model.statistics.execution_count) == (12, 1)
    assert [len(arrays(response)["y"]) for response in responses] == [2, 1, 5, 4]
    await model.close()


async def test_only_requested_outputs_come_back(tmp_path: Path) -> None:
    model = await load(onnx_models.save_add_sub(tmp_path / "1" / "model.onnx").parent)
    ones = np.ones((1, 16), np.int32)
    inputs = [Tensor.from_numpy(name, ones, "INT32") for name in ("INPUT1", "INPUT0")]
    (response,) = await infer(model, inputs, outputs=("OUTPUT1",))
    assert list(arrays(response)) == ["OUTPUT1"]
    assert not arrays(response)["OUTPUT1"].any()
    await model.close()


@pytest.mark.parametrize(
    ("element", "datatype"),
    [
        (TensorProto.BOOL, "BOOL"),
        (TensorProto.UINT8, "UINT8"),
        (TensorProto.INT16, "INT16"),
        (TensorProto.INT64, "INT64"),
        (TensorProto.FLOAT16, "FP16"),
        (TensorProto.DOUBLE, "FP64"),
    ],
)
async def test_every_element_type_comes_back_as_it_went(tmp_path: Path, element: int, datatype: str) -> None:
    model = await load(onnx_models.save_identity(tmp_path / "1" / "model.onnx", element, ["N", 3]).parent)
    raw = np.array([[1, 0, 1], [0, 1, 1]]).astype(np.dtype("?") if datatype == "BOOL" else model_dtype(datatype))
    (response,) = await infer(model, [Tensor.from_numpy("x", raw, datatype)])
    (output,) = response.outputs
    assert (output.datatype, output.shape, bytes(output.data)) == (datatype, (2, 3), raw.tobytes())
    await model.close()


def model_dtype(datatype: str) -> np.dtype:
    return np.dtype(datatype.replace("FP", "float").replace("UINT", "uint").replace("INT", "int"))


async def test_bfloat16_travels_as_raw_bits(tmp_path: Path) -> None:
    folder = onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.BFLOAT16, ["N", 2]).parent
    model = await load(folder)
    data = np.array([[0x3F80, 0xC000], [1, 2]], np.uint16)
    responses = await infer(model, *([Tensor.from_numpy("x", part, "BF16")] for part in (data[:1], data[1:])))
    assert [arrays(response)["y"].tolist() for response in responses] == [[[0x3F80, 0xC000]], [[1, 2]]]
    await model.close()


async def test_strings_are_utf8_and_a_bad_one_fails_alone(tmp_path: Path) -> None:
    folder = onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.STRING, ["N", 2]).parent
    model = await load(folder, 'backend: "onnxruntime" instance_group { count: 1 kind: KIND_CPU }')
    words = [np.array([row], dtype=object) for row in ([b"caf\xc3\xa9", b"a\x00b"], [b"\xff", b""], [b"", b"z"])]
    responses = await infer(model, *([Tensor.from_numpy("x", part, "BYTES")] for part in words))

    assert arrays(responses[0])["y"].tolist() == words[0].tolist()
    assert arrays(responses[2])["y"].tolist() == words[2].tolist()
    assert responses[1].error is not None
    assert responses[1].error.code is ErrorCode.INVALID_ARG
    assert responses[1].error.message == "a string of input 'x' is not valid UTF-8"
    await model.close()


async def test_views_at_odd_addresses_are_taken(tmp_path: Path) -> None:
    model = await load(onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.FLOAT, ["N", 4]).parent)
    data = np.arange(4, dtype=np.float32).tobytes()
    (response,) = await infer(model, [Tensor("x", "FP32", (1, 4), memoryview(b"\x00" + data)[1:])])
    assert bytes(response.outputs[0].data) == data
    await model.close()


async def test_empty_tensors_are_served(tmp_path: Path) -> None:
    shape = (2, 0)
    folder = onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.FLOAT, ["N", "K"]).parent
    config = 'backend: "onnxruntime" max_batch_size: 4 dynamic_batching { } instance_group { kind: KIND_CPU count: 1 }'
    model = await load(folder, config)
    responses = await infer(model, *[[Tensor("x", "FP32", shape, b"")]] * 2)
    for response in responses:
        assert arrays(response)["y"].shape == shape
    await model.close()


async def test_fixed_shape_model_is_served_without_batching(tmp_path: Path) -> None:
    model = await load(onnx_models.save_add_sub(tmp_path / "1" / "model.onnx", rows=2).parent)
    assert model.max_batch_size == 0
    twos = np.full((2, 16), 2, np.int32)
    (response,) = await infer(model, [Tensor.from_numpy(name, twos, "INT32") for name in ("INPUT0", "INPUT1")])
    assert arrays(response)["OUTPUT0"].tolist() == (twos + twos).tolist()
    await model.close()


async def test_reshape_is_undone_for_the_client(tmp_path: Path) -> None:
    folder = onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.FLOAT, ["N"]).parent
    model = await load(
        folder,
        'backend: "onnxruntime" max_batch_size: 4'
        ' input { name: "x" data_type: TYPE_FP32 dims: 1 reshape { } }'
        ' output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { } }',
    )
    data = np.array([[1], [2], [3]], np.float32)
    (response,) = await infer(model, [Tensor.from_numpy("x", data, "FP32")])
    assert arrays(response)["y"].tolist() == data.tolist()
    await model.close()


async def test_engine_error_reaches_the_client_as_internal(tmp_path: Path) -> None:
    model = await load(onnx_models.save_gather(tmp_path / "1" / "model.onnx").parent)
    (response,) = await infer(model, [Tensor.from_numpy("i", np.array([[9]]), "INT64")])
    assert response.error is not None
    assert response.error.code is ErrorCode.INTERNAL
    assert response.error.message.startswith("onnx runtime error 2: ")
    (good,) = await infer(model, [Tensor.from_numpy("i", np.array([[3]]), "INT64")])
    assert arrays(good)["y"].tolist() == [[3.0]]
    await model.close()


def changed(path: Path, **versions: int) -> bytes:
    model = onnx.load(path)
    if "opset" in versions:
        model.opset_import[0].version = versions["opset"]
    if "ir" in versions:
        model.ir_version = versions["ir"]
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda path: path.read_bytes()[:200],
            r"^'model\.onnx' is not a complete ONNX model: .* \(truncated or another",
        ),
        (lambda path: b"%PDF-1.7 not a model", r"^'model\.onnx' is not a complete ONNX model"),
        (lambda path: b"", r"^'model\.onnx' is empty$"),
        (
            lambda path: changed(path, opset=99),
            r"^'model\.onnx' uses opset 99 of ai\.onnx, ONNX Runtime \S+ supports opsets up to \d+$",
        ),
        (
            lambda path: changed(path, ir=99),
            r"^'model\.onnx' uses ONNX IR version 99, ONNX Runtime \S+ supports versions up to \d+$",
        ),
    ],
)
async def test_bad_file_is_refused_with_one_sentence(tmp_path: Path, damage, sentence: str) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    path.write_bytes(damage(path))
    with pytest.raises(InferenceError, match=sentence) as caught:
        await load(path.parent)
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert "\n" not in caught.value.message


async def test_missing_and_escaping_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    with pytest.raises(InferenceError, match=r"^unable to find 'model\.onnx' for model 'm'$"):
        await load(tmp_path / "1")
    onnx_models.save_mlp(tmp_path / "secret.onnx")
    with pytest.raises(InferenceError, match=r"file name '\.\./secret\.onnx' escapes the model directory for m"):
        await load(tmp_path / "1", 'backend: "onnxruntime" default_model_filename: "../secret.onnx"')


@pytest.mark.parametrize(
    "config",
    [
        'input { name: "x" data_type: TYPE_INT32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 10 }',
        'input { name: "x" data_type: TYPE_FP32 dims: 17 } output { name: "y" data_type: TYPE_FP32 dims: 10 }',
        'input { name: "z" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 10 }',
        "dynamic_batching { preferred_batch_size: 99 }",
    ],
)
async def test_config_that_contradicts_the_file_is_refused(tmp_path: Path, config: str) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    with pytest.raises(InferenceError) as caught:
        await load(path.parent, f'backend: "onnxruntime" max_batch_size: 4 {config}')
    assert caught.value.code is ErrorCode.INVALID_ARG


async def test_gpu_without_provider_is_refused(tmp_path: Path) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.fail("this test belongs to machines with the CPU build of ONNX Runtime")
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    config = 'backend: "onnxruntime" instance_group { kind: KIND_GPU gpus: 0 }'
    with pytest.raises(InferenceError, match="KIND_GPU, but the ONNX Runtime of this node has no CUDA provider"):
        await load(path.parent, config, gpu_count=1)


async def test_warmup_samples_run_and_a_bad_one_fails_the_load(tmp_path: Path) -> None:
    path = onnx_models.save_gather(tmp_path / "1" / "model.onnx")
    sample = 'model_warmup { name: "s" batch_size: 2 inputs { key: "i" value { data_type: TYPE_INT64 dims: 1 %s } } }'
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "index").write_bytes(np.array([2]).tobytes())
    (tmp_path / "warmup" / "large").write_bytes(np.array([99]).tobytes())
    head = 'backend: "onnxruntime" max_batch_size: 4 '
    model = await load(path.parent, head + sample % 'input_data_file: "index"')
    assert model.statistics.execution_count == 0, "warm-up is not counted"
    await model.close()
    with pytest.raises(InferenceError, match="failed to run warmup sample 's': onnx runtime error"):
        await load(path.parent, head + sample % 'input_data_file: "large"')
    with pytest.raises(InferenceError, match="escapes the model directory"):
        await load(path.parent, head + sample % 'input_data_file: "../1/model.onnx"')


@pytest.mark.parametrize("parameter", ["intra_op_thread_count", "execution_mode"])
async def test_session_parameters_must_be_integers(tmp_path: Path, parameter: str) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    config = f'backend: "onnxruntime" parameters {{ key: "{parameter}" value {{ string_value: "many" }} }}'
    with pytest.raises(InferenceError, match=f"parameter '{parameter}' must be an integer, got 'many'"):
        await load(path.parent, config)


async def test_output_that_loses_its_rows_is_an_error_and_not_a_wrong_answer(tmp_path: Path) -> None:
    path = onnx_models.save(
        tmp_path / "1" / "model.onnx",
        [onnx.helper.make_node("Unique", ["x"], ["y"])],
        [onnx_models.tensor("x", TensorProto.FLOAT, ["N", 2])],
        [onnx_models.tensor("y", TensorProto.FLOAT, ["M"])],
    )
    model = await load(
        path.parent,
        'backend: "onnxruntime" max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: 2 }'
        ' output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { } }',
    )
    (response,) = await infer(model, [Tensor.from_numpy("x", np.ones((2, 2), np.float32), "FP32")])
    assert response.error is not None
    assert "does not keep the batch dimension" in response.error.message
    await model.close()


async def test_cancelled_load_frees_what_it_opened(tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    load_task = asyncio.create_task(load(path.parent))
    await asyncio.sleep(0)
    load_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load_task


def test_unknown_backend_is_refused() -> None:
    with pytest.raises(InferenceError, match="unable to find backend library for backend 'caffe'"):
        Backends().get("caffe")


def save_with_default(path: Path) -> Path:
    """``y`` = ``x`` + ``bias``, FP32 [2]; ``bias`` is 10 unless it is given."""
    float_ = TensorProto.FLOAT
    return onnx_models.save(
        path,
        [onnx.helper.make_node("Add", ["x", "bias"], ["y"])],
        [onnx_models.tensor("x", float_, [2]), onnx_models.tensor("bias", float_, [2])],
        [onnx_models.tensor("y", float_, [2])],
        {"bias": np.full(2, 10, np.float32)},
    )


SIDES = (
    'input { name: "x" data_type: TYPE_FP32 dims: 2 } output { name: "y" data_type: TYPE_FP32 dims: 2 }'
    ' input { name: "bias" data_type: TYPE_FP32 dims: 2 optional: %s }'
)


async def test_an_input_with_a_value_in_the_file_may_be_given_or_left_out(tmp_path: Path) -> None:
    folder = save_with_default(tmp_path / "1" / "model.onnx").parent
    model = await load(folder, 'backend: "onnxruntime" ' + SIDES % "true")
    x, bias = (Tensor.from_numpy(name, np.ones(2, np.float32), "FP32") for name in ("x", "bias"))
    without, with_it = await infer(model, [x], [x, bias])
    assert arrays(without)["y"].tolist() == [11, 11]
    assert arrays(with_it)["y"].tolist() == [2, 2]
    await model.close()
    completed = await load(folder)
    assert [tensor.name for tensor in completed.metadata.inputs] == ["x"]
    await completed.close()


async def test_optional_inputs_that_the_file_cannot_fill_in_are_refused(tmp_path: Path) -> None:
    folder = save_with_default(tmp_path / "1" / "model.onnx").parent
    with pytest.raises(InferenceError, match="unable to load model 'm', configuration expects 2 inputs, model provi"):
        await load(folder, 'backend: "onnxruntime" ' + SIDES % "false")
    batched = onnx_models.save_mlp(tmp_path / "2" / "model.onnx").parent
    config = (
        'backend: "onnxruntime" max_batch_size: 4 output { name: "y" data_type: TYPE_FP32 dims: 10 }'
        ' input { name: "x" data_type: TYPE_FP32 dims: 16 optional: true }'
    )
    sentence = "unable to load model 'm', optional input 'x' is not supported for models that support batching"
    with pytest.raises(InferenceError, match=sentence):
        await load(batched, config)


def custom_operators(folder: Path, library: str, *, in_worker: bool) -> ModelSource:
    onnx_models.save_mlp(folder / "model.onnx")
    config = parse_pbtxt(f'name: "m" model_operations {{ op_library_filename: "{library}" }}')
    return ModelSource("m", 1, folder, config, in_worker=in_worker)


def test_operator_libraries_are_loaded_in_a_worker_only(tmp_path: Path) -> None:
    backend = Backends().get("onnxruntime")
    (tmp_path / "libops.so").write_bytes(b"no library")
    with pytest.raises(InferenceError, match="custom operator libraries are code and cannot be loaded into the node's"):
        backend.open_model(custom_operators(tmp_path / "1", "libops.so", in_worker=False))
    # beside the version, as in the version
    with pytest.raises(InferenceError, match=r"cannot load 'model\.onnx': .*libops\.so: file too short"):
        backend.open_model(custom_operators(tmp_path / "1", "libops.so", in_worker=True))
    with pytest.raises(InferenceError, match=r"unable to find operator library 'other\.so' for model 'm'"):
        backend.open_model(custom_operators(tmp_path / "1", "other.so", in_worker=True))
    with pytest.raises(InferenceError, match=r"operator library '\.\./\.\./x\.so' lies outside the model's folder"):
        backend.open_model(custom_operators(tmp_path / "1", "../../x.so", in_worker=True))


def test_bound_memory_gives_the_same_answers(tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    config = complete(parse_pbtxt('name: "m"'), signature_of(session))
    bound = GpuInstance(session, config, SessionSettings(), ("cpu", 0))
    data = np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    request = InferenceRequest("m", "", [Tensor.from_numpy("x", data, "FP32")], lambda response: None)
    kept = []
    for _ in range(2):
        execution = Execution([request], 5)
        bound.execute(execution)
        kept.append(execution.results[0][0].as_numpy())
    expected = session.run(["y"], {"x": data})[0]
    assert [array.tobytes() for array in kept] == [expected.tobytes()] * 2
