"""From a model's config to the providers and settings of its sessions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serving_node.backends.onnxruntime.providers import CPU, CUDA, OPENVINO, TENSORRT, providers
from serving_node.backends.onnxruntime.settings import GlobalThreads, global_threads, session_settings
from serving_node.contract.code_formats import CodeKind, code_parts
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import ModelConfig, parse_pbtxt
from serving_node.core.backend import Device, DeviceKind
from serving_node.core.errors import InferenceError
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import load

ALL = (TENSORRT, CUDA, OPENVINO, CPU)
GPU = Device(DeviceKind.GPU, 1)


def accelerated(side: str, name: str, **parameters: str) -> ModelConfig:
    entries = "".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    return parse_pbtxt(
        f'name: "m" optimization {{ execution_accelerators {{ {side}_execution_accelerator'
        f' {{ name: "{name}" {entries} }} }} }}'
    )


def with_parameters(**parameters: str) -> ModelConfig:
    config = ModelConfig(name="m")
    for key, value in parameters.items():
        config.parameters[key.replace("__", ".")].string_value = value
    return config


def refusal(call: object, *arguments: object, **more: object) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        call(*arguments, **more)  # type: ignore[operator]
    return caught.value


def test_the_kind_of_the_instance_chooses() -> None:
    assert providers(ModelConfig(), Device(), ALL) == [(CPU, {})]
    assert providers(ModelConfig(), GPU, ALL) == [(CUDA, {"device_id": "1"}), (CPU, {})]


def test_tensorrt_goes_before_cuda_with_its_options_renamed() -> None:
    config = accelerated(
        "gpu",
        "tensorrt",
        precision_mode="FP16",
        max_workspace_size_bytes="1073741824",
        trt_engine_cache_enable="true",
        trt_profile_min_shapes="x:1x16",
    )
    assert providers(config, GPU, ALL) == [
        (
            TENSORRT,
            {
                "trt_fp16_enable": "1",
                "trt_max_workspace_size": "1073741824",
                "trt_engine_cache_enable": "1",
                "trt_profile_min_shapes": "x:1x16",
                "device_id": "1",
            },
        ),
        (CUDA, {"device_id": "1"}),
        (CPU, {}),
    ]
    assert providers(config, Device(), ALL) == [(CPU, {})], "accelerators of GPUs are for instances on GPUs"


def test_cuda_options_in_both_of_their_forms() -> None:
    config = accelerated("gpu", "cuda", use_tf32="0", cudnn_conv_algo_search="HEURISTIC")
    config.MergeFrom(
        with_parameters(cudnn_conv_algo_search="2", gpu_mem_limit="1000", arena_extend_strategy="1", name="ignored")
    )
    assert providers(config, GPU, ALL)[0] == (
        CUDA,
        {
            "use_tf32": "0",
            "cudnn_conv_algo_search": "DEFAULT",
            "arena_extend_strategy": "kSameAsRequested",
            "gpu_mem_limit": "1000",
            "device_id": "1",
        },
    )


def test_openvino_accelerates_the_processor() -> None:
    config = accelerated("cpu", "openvino", num_of_threads="2")
    assert providers(config, Device(), ALL) == [(OPENVINO, {"device_type": "CPU", "num_of_threads": "2"}), (CPU, {})]


@pytest.mark.parametrize(
    ("config", "device", "sentence"),
    [
        (accelerated("gpu", "gpu_io"), GPU, "unknown Execution Accelerator 'gpu_io' is requested"),
        (accelerated("cpu", "tensorrt"), Device(), "unknown Execution Accelerator 'tensorrt' is requested"),
        (
            accelerated("gpu", "tensorrt", precision_mode="FP4"),
            GPU,
            "unsupported precision mode 'FP4' is requested",
        ),
        (
            accelerated("gpu", "tensorrt", speed="9"),
            GPU,
            "unknown parameter 'speed' is provided for TensorRT Execution Accelerator",
        ),
        (
            accelerated("gpu", "cuda", user_compute_stream="140737488355328"),
            GPU,
            "unknown parameter 'user_compute_stream' is provided for CUDA Execution Accelerator",
        ),
        (
            accelerated("gpu", "tensorrt", trt_dla_enable="perhaps"),
            GPU,
            "parameter 'trt_dla_enable' must be true or false, got 'perhaps'",
        ),
        (with_parameters(cudnn_conv_algo_search="3"), GPU, "unsupported cudnn_conv_algo_search value '3' is requested"),
        (with_parameters(gpu_mem_limit="all"), GPU, "parameter 'gpu_mem_limit' must be an integer, got 'all'"),
    ],
)
def test_wrong_options_are_refused(config: ModelConfig, device: Device, sentence: str) -> None:
    error = refusal(providers, config, device, ALL)
    assert (error.code, error.message) == (ErrorCode.INVALID_ARG, sentence)


def test_files_outside_the_version_need_a_worker() -> None:
    config = accelerated("gpu", "tensorrt", trt_extra_plugin_lib_paths="/opt/plugin.so")
    assert refusal(providers, config, GPU, ALL).code is ErrorCode.UNSUPPORTED
    (name, options), *_ = providers(config, GPU, ALL, allow_code=True)
    assert (name, options["trt_extra_plugin_lib_paths"]) == (TENSORRT, "/opt/plugin.so")


@pytest.mark.parametrize(
    ("config", "device", "sentence"),
    [
        (
            ModelConfig(name="m"),
            GPU,
            "model 'm' asks for KIND_GPU, but the ONNX Runtime of this node has no CUDA provider",
        ),
        (
            accelerated("cpu", "openvino"),
            Device(),
            "model 'm' asks for OpenVINOExecutionProvider, which the ONNX Runtime of this node does not have",
        ),
    ],
)
def test_a_provider_that_is_not_installed_is_one_error(config: ModelConfig, device: Device, sentence: str) -> None:
    assert refusal(providers, config, device, (CPU,)).message == sentence


async def test_a_model_with_an_accelerator_that_is_not_there_does_not_load(tmp_path: Path) -> None:
    path = onnx_models.save_mlp(tmp_path / "1" / "model.onnx")
    config = accelerated("cpu", "openvino")
    config.backend = "onnxruntime"
    with pytest.raises(InferenceError, match="asks for OpenVINOExecutionProvider"):
        await load(path.parent, config)


def test_parameters_become_settings() -> None:
    settings = session_settings(
        with_parameters(
            intra_op_thread_count="3",
            inter_op_thread_count="2",
            execution_mode="1",
            enable_mem_arena="off",
            enable_mem_pattern="0",
            memory__enable_memory_arena_shrinkage="cpu:0",
            session__use_device_allocator_for_initializers="1",
        ),
        1,
    )
    assert (settings.intra_op_threads, settings.inter_op_threads, settings.parallel_execution) == (3, 2, True)
    assert (settings.memory_arena, settings.memory_pattern, settings.shrink_arena) == (False, False, "cpu:0")
    assert settings.session_entries == {"session.use_device_allocator_for_initializers": "1"}


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (
            {"execution_mode": "2"},
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got 2 .",
        ),
        ({"intra_op_thread_count": "-1"}, "parameter 'intra_op_thread_count' must be between 0 and 1024, got -1"),
        ({"enable_mem_arena": "maybe"}, "parameter 'enable_mem_arena' must be true or false, got 'maybe'"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, str], sentence: str) -> None:
    assert refusal(session_settings, with_parameters(**parameters), 1).message == sentence


def test_global_threads_are_asked_for_on_the_command_line() -> None:
    assert global_threads({}) is None
    assert global_threads({"enable-global-threadpool": "0", "intra_op_thread_count": "9"}) is None
    assert global_threads({"enable-global-threadpool": "1", "intra_op_thread_count": "2"}) == GlobalThreads(2, 0)


_SHARED_POOL = """
import sys, threading
from pathlib import Path
from serving_node.backends.loader import Backends
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.backend import Device, ModelSource

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

options = {"enable-global-threadpool": sys.argv[2], "intra_op_thread_count": "4"}
backend = Backends({"onnxruntime": options}).get("onnxruntime")
config = parse_pbtxt('parameters { key: "intra_op_thread_count" value { string_value: "4" } }')
before = threads()
source = ModelSource("m", 1, Path(sys.argv[1]), config)
models = [backend.open_model(source) for _ in range(3)]
print(threads() - before)
"""


def test_sessions_share_the_global_threads(tmp_path: Path) -> None:
    folder = onnx_models.save_mlp(tmp_path / "1" / "model.onnx").parent

    def threads(shared: str) -> int:
        command = [sys.executable, "-c", _SHARED_POOL, str(folder), shared]
        return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)

    assert threads("1") <= 3, "one pool, whatever the models say"
    assert threads("0") >= 9, "a pool for each session"


def test_accelerator_options_that_name_files_are_code() -> None:
    config = accelerated("gpu", "tensorrt", trt_engine_cache_path="/cache", trt_engine_cache_enable="1")
    config.backend = "onnxruntime"
    assert [(part.path, part.kind) for part in code_parts(["model.onnx"], config)] == [("/cache", CodeKind.LIBRARY)]
    assert code_parts(["model.onnx"], accelerated("gpu", "cuda", use_tf32="1")) == ()
