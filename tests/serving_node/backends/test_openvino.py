"""OpenVINO: its own format and ONNX, the parameters of Triton's backend, shapes, batches, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from onnx import TensorProto, helper

from serving_node.backends.loader import Backends
from serving_node.backends.openvino.settings import openvino_settings
from serving_node.contract.code_formats import CodeKind, code_parts
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import ModelConfig, complete, detect_backend, normalise
from serving_node.core.backend import Device, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, infer, load

IR = 'backend: "openvino" %s'
ONNX = 'backend: "openvino" default_model_filename: "model.onnx" %s'
ONE = "instance_group { kind: KIND_CPU count: 1 }"


def save_ir(folder: Path, *, rows: int = -1, layout: str = "") -> Path:
    """``y`` = ReLU of ``x``, FP32 [rows, 4], as OpenVINO's own two files, with weights of which nothing depends."""
    x = ov.op.Parameter(ov.Type.f32, ov.PartialShape([rows, 4]))
    x.output(0).set_names({"x"})
    zeros = ov.op.Constant(np.zeros((1, 4), np.float32))
    y = ov.opset13.relu(ov.opset13.add(x, zeros))
    y.output(0).set_names({"y"})
    model = ov.Model([y.output(0)], [x], "relu")
    if layout:
        model.inputs[0].node.set_layout(ov.Layout(layout))
        model.outputs[0].node.set_layout(ov.Layout(layout))
    folder.mkdir(parents=True)
    ov.save_model(model, folder / "model.xml", compress_to_fp16=False)
    return folder


def numbers(rows: int) -> np.ndarray:
    return np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) - 3


def parameters(**values: str) -> str:
    return " ".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in values.items()
    )


async def test_ir_is_detected_completed_and_served(tmp_path: Path) -> None:
    folder = save_ir(tmp_path / "1")
    detected = detect_backend(ModelConfig(name="m"), ["model.bin", "model.xml"], model_name="m")
    assert (detected.backend, detected.default_model_filename) == ("openvino", "model.xml")
    model = await load(folder, detected)
    assert (model.config.max_batch_size, model.config.HasField("dynamic_batching")) == (4, True)
    assert [(one.name, one.datatype, one.shape) for one in model.metadata.outputs] == [("y", "FP32", (-1, 4))]
    responses = await infer(model, *([Tensor.from_numpy("x", numbers(rows), "FP32")] for rows in (1, 3)))
    assert [arrays(one)["y"].tolist() for one in responses] == [np.maximum(numbers(n), 0).tolist() for n in (1, 3)]
    assert model.memory_bytes >= (folder / "model.xml").stat().st_size
    await model.close()


async def test_layouts_tell_the_batch_of_a_model_with_fixed_rows(tmp_path: Path) -> None:
    model = await load(save_ir(tmp_path / "1", rows=1, layout="NC"), IR % "")
    assert model.config.max_batch_size == 4
    (response,) = await infer(model, [Tensor.from_numpy("x", numbers(3), "FP32")])
    assert arrays(response)["y"].tolist() == np.maximum(numbers(3), 0).tolist()
    await model.close()


async def test_fixed_rows_without_layouts_stay_as_they_are(tmp_path: Path) -> None:
    model = await load(save_ir(tmp_path / "1", rows=2), IR % "")
    assert model.config.max_batch_size == 0
    (response,) = await infer(model, [Tensor.from_numpy("x", numbers(2), "FP32")])
    assert arrays(response)["y"].shape == (2, 4)
    await model.close()


async def test_max_batch_size_frees_the_first_dimension(tmp_path: Path) -> None:
    model = await load(save_ir(tmp_path / "1", rows=1), IR % f"max_batch_size: 8 {ONE}")
    (response,) = await infer(model, [Tensor.from_numpy("x", numbers(7), "FP32")])
    assert arrays(response)["y"].shape == (7, 4)
    await model.close()


@pytest.mark.parametrize("pads", [False, True])
async def test_a_compiled_batch_is_filled_up_when_asked_for(tmp_path: Path, pads: bool) -> None:
    more = parameters(SKIP_OV_DYNAMIC_BATCHSIZE="YES", **({"ENABLE_BATCH_PADDING": "yes"} if pads else {}))
    model = await load(save_ir(tmp_path / "1"), IR % f"max_batch_size: 4 {ONE} {more}" + warm(4))
    full, part = await infer(model, *([Tensor.from_numpy("x", numbers(rows), "FP32")] for rows in (4, 3)))
    assert arrays(full)["y"].tolist() == np.maximum(numbers(4), 0).tolist()
    if pads:
        assert arrays(part)["y"].tolist() == np.maximum(numbers(3), 0).tolist()
    else:
        assert part.error is not None
        assert part.error.code is ErrorCode.INTERNAL
        assert part.error.message == (
            "expected requests with batch size '4', got '3'... this error can be avoided by setting"
            " 'ENABLE_BATCH_PADDING' parameter in model configuration to 'YES' at a performance cost."
        )
    await model.close()


def warm(rows: int) -> str:
    return (
        f' model_warmup {{ name: "full" batch_size: {rows} inputs {{ key: "x" value {{'
        " data_type: TYPE_FP32 dims: 4 zero_data: true } } }"
    )


async def test_dims_of_the_config_replace_those_of_the_file_when_asked_for(tmp_path: Path) -> None:
    path = onnx_models.save_identity(tmp_path / "1" / "model.onnx", TensorProto.FLOAT, ["N", 3])
    dims = "data_type: TYPE_FP32 dims: [ 5 ]"
    sides = f' input {{ name: "x" {dims} }} output {{ name: "y" {dims} }}'
    with pytest.raises(InferenceError, match=r"the model expects 2 dimensions \(shape \[-1,3\]\)"):
        await load(path.parent, ONNX % ("max_batch_size: 4" + sides))
    model = await load(path.parent, ONNX % ("max_batch_size: 4" + sides + parameters(RESHAPE_IO_LAYERS="yes")))
    (response,) = await infer(model, [Tensor.from_numpy("x", np.ones((2, 5), np.float32), "FP32")])
    assert arrays(response)["y"].shape == (2, 5)
    await model.close()


async def test_other_types_of_the_config_are_converted(tmp_path: Path) -> None:
    model = await load(
        save_ir(tmp_path / "1"),
        IR % 'max_batch_size: 4 input { name: "x" data_type: TYPE_UINT8 dims: 4 }'
        ' output { name: "y" data_type: TYPE_INT32 dims: 4 }',
    )
    data = np.array([[0, 1, 2, 255]], np.uint8)
    (response,) = await infer(model, [Tensor.from_numpy("x", data, "UINT8")])
    assert arrays(response)["y"].dtype == np.int32
    assert arrays(response)["y"].tolist() == data.tolist()
    await model.close()


async def test_instances_run_side_by_side_on_one_compiled_model(tmp_path: Path) -> None:
    config = IR % "max_batch_size: 1 instance_group { kind: KIND_CPU count: 3 }"
    model = await load(save_ir(tmp_path / "1"), config)
    sent = [numbers(1) + index for index in range(30)]
    responses = await infer(model, *([Tensor.from_numpy("x", one, "FP32")] for one in sent))
    for one, response in zip(sent, responses, strict=True):
        assert arrays(response)["y"].tolist() == np.maximum(one, 0).tolist()
    await model.close()


async def test_an_error_of_the_engine_fails_the_request_only(tmp_path: Path) -> None:
    float_ = TensorProto.FLOAT
    path = onnx_models.save(
        tmp_path / "1" / "model.onnx",
        [helper.make_node("MatMul", ["x", "z"], ["y"])],
        [onnx_models.tensor("x", float_, ["N", "K"]), onnx_models.tensor("z", float_, ["N", "L"])],
        [onnx_models.tensor("y", float_, ["N", "M"])],
    )
    model = await load(path.parent, ONNX % ONE)
    pairs = [[np.ones((1, width), np.float32) for width in widths] for widths in ((3, 5), (1, 4))]
    bad, good = await infer(
        model, *([Tensor.from_numpy("x", x, "FP32"), Tensor.from_numpy("z", z, "FP32")] for x, z in pairs)
    )
    assert bad.error is not None
    assert bad.error.code is ErrorCode.INTERNAL
    assert bad.error.message == (
        "openvino error in running inference : Matmul input shapes are incompatible shape A: (1.3) shape B: (1.5)"
    )
    assert arrays(good)["y"].tolist() == [[1, 1, 1, 1]]
    await model.close()


def save_product(folder: Path) -> Path:
    float_ = TensorProto.FLOAT
    inputs = [onnx_models.tensor("x", float_, ["N", "K"]), onnx_models.tensor("z", float_, ["N", "L"])]
    node = helper.make_node("MatMul", ["x", "z"], ["y"])
    return onnx_models.save(folder / "model.onnx", [node], inputs, [onnx_models.tensor("y", float_, ["N", "M"])])


def product(width: int, columns: int) -> Execution:
    arrays = {"x": np.ones((1, width), np.float32), "z": np.ones((1, columns), np.float32)}
    inputs = [Tensor.from_numpy(name, array, "FP32") for name, array in arrays.items()]
    return Execution([InferenceRequest("m", "", inputs, lambda response: None)], 1)


def shape_of(execution: Execution) -> tuple[int, ...]:
    (tensors,) = execution.results
    assert isinstance(tensors, list)
    return tensors[0].shape


def test_an_error_of_one_instance_is_none_of_the_others(tmp_path: Path) -> None:
    config = ModelConfig(name="m", default_model_filename=save_product(tmp_path / "1").name)
    model = Backends().get("openvino").open_model(ModelSource("m", 1, tmp_path / "1", config, (Device(), Device())))
    config = complete(config, model.signature())
    config.max_batch_size = 0
    first, second = (model.create_instance(Device(), config, name) for name in ("a", "b"))
    for instance in (first, second):
        good = product(1, 2)
        instance.execute(good)
        assert shape_of(good) == (1, 2)
    with pytest.raises(InferenceError, match="incompatible"):
        first.execute(product(3, 5))
    for columns in (4, 6):
        good = product(1, columns)
        second.execute(good)
        assert shape_of(good) == (1, columns)


def test_a_batch_that_ran_while_another_failed_runs_again(tmp_path: Path) -> None:
    config = ModelConfig(name="m", default_model_filename=save_product(tmp_path / "1").name)
    model = Backends().get("openvino").open_model(ModelSource("m", 1, tmp_path / "1", config, (Device(), Device())))
    config = complete(config, model.signature())
    config.max_batch_size = 0
    instance = model.create_instance(Device(), config, "a")

    class Disturbed:
        """A request during which the batch of another instance fails."""

        def infer(self, *arguments: object, **more: object) -> None:
            assert model.discard(model.compiled())

    instance._request = Disturbed()
    good = product(1, 3)
    instance.execute(good)
    assert shape_of(good) == (1, 3)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "model.bin").write_bytes(b"x"), "Incorrect weights in bin file"),
        (lambda folder: (folder / "model.bin").unlink(), "Empty weights data in bin file or bin file cannot be found"),
        (lambda folder: cut(folder / "model.xml", 800), "at offset 799"),
        (lambda folder: cut(folder / "model.xml", 0), "it is not a model, or of another format than its name says"),
        (lambda folder: change(folder / "model.xml", 'type="ReLU"', 'type="Odd"'), "doesn't contain the operation"),
        (lambda folder: replace(folder / "model.xml", b'names="x"', b'names="\xff"'), "a name in it is no UTF-8"),
        (lambda folder: change(folder / "model.xml", 'offset="0"', 'offset="99999999999"'), "Incorrect weights"),
    ],
)
async def test_a_damaged_model_is_refused_with_one_sentence(tmp_path: Path, damage, sentence: str) -> None:
    folder = save_ir(tmp_path / "1")
    damage(folder)
    with pytest.raises(InferenceError, match=rf"^OpenVINO \S+ cannot load 'model\.xml': .*{sentence}") as caught:
        await load(folder, IR % "")
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert "\n" not in caught.value.message


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def change(path: Path, old: str, new: str) -> None:
    replace(path, old.encode(), new.encode())


def replace(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (IR % "", "^unable to find 'model.xml' for model 'm'$"),
        (ONNX % "", "'model.onnx' is not a complete ONNX model"),
        (IR % 'default_model_filename: "words.onnx"', "tensor 'x' is of OpenVINO type string, which is not served"),
    ],
)
async def test_what_cannot_be_served_is_refused(tmp_path: Path, config: str, sentence: str) -> None:
    onnx_models.save_identity(tmp_path / "1" / "words.onnx", TensorProto.STRING, ["N"])
    (tmp_path / "1" / "model.onnx").write_bytes(b"%PDF")
    with pytest.raises(InferenceError, match=sentence):
        await load(tmp_path / "1", config)


async def test_instances_on_a_gpu_are_refused_and_chosen_by_nobody(tmp_path: Path) -> None:
    folder = save_ir(tmp_path / "1")
    with pytest.raises(InferenceError) as caught:
        await load(folder, IR % "instance_group { kind: KIND_GPU }", gpu_count=1)
    assert caught.value.message == "unable to load model 'm', Triton OpenVINO backend supports only Kind CPU and AUTO"
    config = normalise(ModelConfig(name="m", backend="openvino"), gpu_count=2)
    assert config.instance_group[0].kind == config.instance_group[0].KIND_CPU
    with pytest.raises(InferenceError, match="OpenVINO finds no device NPU on this node, only CPU"):
        await load(folder, IR % parameters(TARGET_DEVICE="npu"))


def settings_of(**values: str):
    config = ModelConfig()
    for key, value in values.items():
        config.parameters[key].string_value = value
    return openvino_settings(config, threads=3, instances=2)


def test_parameters_become_properties() -> None:
    default = settings_of()
    assert (default.device, default.properties["INFERENCE_PRECISION_HINT"]) == ("CPU", "f32")
    assert (default.properties["INFERENCE_NUM_THREADS"], default.properties["NUM_STREAMS"]) == ("3", "2")
    chosen = settings_of(
        INFERENCE_NUM_THREADS="1", COMPILATION_NUM_THREADS="4", HINT_BF16="YES", NUM_STREAMS="AUTO"
    ).properties
    assert "COMPILATION_NUM_THREADS" not in chosen, "a processor takes none"
    assert settings_of(TARGET_DEVICE="GPU", COMPILATION_NUM_THREADS="4").properties == {"COMPILATION_NUM_THREADS": "4"}
    assert chosen["INFERENCE_PRECISION_HINT"] == "bf16"
    assert (chosen["INFERENCE_NUM_THREADS"], chosen["NUM_STREAMS"]) == ("1", "AUTO")
    hinted = settings_of(PERFORMANCE_HINT="throughput").properties
    assert hinted["PERFORMANCE_HINT"] == "THROUGHPUT"
    assert "NUM_STREAMS" not in hinted


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("INFERENCE_NUM_THREADS", "many", "a non-negative number"),
        ("COMPILATION_NUM_THREADS", "-1", "a non-negative number"),
        ("HINT_BF16", "no", "YES"),
        ("NUM_STREAMS", "some", "either AUTO/NUMA/<int_value>"),
        ("PERFORMANCE_HINT", "fast", "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT"),
    ],
)
def test_wrong_parameters_are_refused(name: str, value: str, expected: str) -> None:
    with pytest.raises(InferenceError) as caught:
        settings_of(**{name: value})
    assert caught.value.message == f"expected the parameter '{name}' to be {expected}, got {value}"


@pytest.mark.parametrize(
    "values",
    [
        {"NUM_STREAMS": "AUTO"},
        {"NUM_STREAMS": "NUMA"},
        {"NUM_STREAMS": "2", "HINT_BF16": "YES"},
        {"PERFORMANCE_HINT": "LATENCY", "COMPILATION_NUM_THREADS": "1"},
        {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"},
        {"TARGET_DEVICE": "AUTO"},
    ],
)
async def test_the_engine_takes_the_properties(tmp_path: Path, values: dict[str, str]) -> None:
    model = await load(save_ir(tmp_path / "1"), IR % parameters(**values))
    (response,) = await infer(model, [Tensor.from_numpy("x", numbers(1), "FP32")])
    assert arrays(response)["y"].tolist() == np.maximum(numbers(1), 0).tolist()
    await model.close()


def test_an_extension_is_code_and_stays_out_of_the_nodes_process(tmp_path: Path) -> None:
    config = ModelConfig(name="m", backend="openvino")
    config.parameters["CPU_EXTENSION_PATH"].string_value = "libops.so"
    assert [(part.path, part.kind) for part in code_parts([], config)] == [("libops.so", CodeKind.LIBRARY)]
    backend = Backends().get("openvino")
    source = ModelSource("m", 1, save_ir(tmp_path / "1"), config, (Device(),))
    with pytest.raises(InferenceError, match="CPU extensions are code and cannot be loaded into the node's process"):
        backend.open_model(source)
    inside = ModelSource("m", 1, source.directory, config, (Device(),), in_worker=True)
    with pytest.raises(InferenceError, match=r"^unable to find CPU extension 'libops\.so' for model 'm'$"):
        backend.open_model(inside)


def test_it_reports_to_nobody_and_lives_beside_the_other_engines(tmp_path: Path) -> None:
    program = (
        "import sys; from serving_node.backends.loader import Backends; b = Backends();"
        "assert not {'openvino', 'onnxruntime'} & set(sys.modules);"
        "b.get('openvino'); assert 'onnxruntime' not in sys.modules and 'torch' not in sys.modules;"
        "b.get('onnxruntime');"
        "assert sys.modules['openvino_telemetry'] is None"
    )
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == [], "OpenVINO's telemetry would leave an identity in the home folder"


async def test_dynamic_shapes_need_two_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0})
    with pytest.raises(InferenceError) as caught:
        await load(save_ir(tmp_path / "1"), IR % "")
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.message == (
        "model 'm' has dynamic shapes, whose errors OpenVINO does not report on a single core"
    )
    fixed = await load(save_ir(tmp_path / "2", rows=1), IR % "")
    (response,) = await infer(fixed, [Tensor.from_numpy("x", numbers(1), "FP32")])
    assert arrays(response)["y"].shape == (1, 4)
    await fixed.close()
