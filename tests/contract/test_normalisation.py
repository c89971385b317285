"""Defaults that are written into a config, and the backend that follows from files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, detect_backend, normalise, parse_pbtxt
from serving_node.contract.proto.model_config_pb2 import ModelInstanceGroup
from tests.contract.configs import model_configs

CPU, GPU, AUTO = ModelInstanceGroup.KIND_CPU, ModelInstanceGroup.KIND_GPU, ModelInstanceGroup.KIND_AUTO


@given(model_configs(), st.none() | st.integers(0, 3))
def test_normalising_twice_changes_nothing_more(config: ModelConfig, gpu_count: int | None) -> None:
    before = ModelConfig()
    before.CopyFrom(config)
    once = normalise(config, gpu_count=gpu_count)
    assert config == before
    assert normalise(once, gpu_count=gpu_count) == once


def test_an_onnx_model_gets_all_defaults() -> None:
    full = normalise(parse_pbtxt('name: "m" platform: "onnxruntime_onnx" max_batch_size: 4 dynamic_batching {}'))
    assert full == parse_pbtxt("""
        name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" default_model_filename: "model.onnx"
        version_policy { latest { num_versions: 1 } }
        max_batch_size: 4 dynamic_batching { preferred_batch_size: 4 }
        optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: true } }
        instance_group { name: "m" count: 2 kind: KIND_CPU }
    """)


@pytest.mark.parametrize(
    ("given_policy", "expected"),
    [
        ("", ""),
        ("latest {}", "latest { num_versions: 1 }"),
        ("latest { num_versions: 3 }", "latest { num_versions: 3 }"),
        ("all {}", "all {}"),
        ("specific { versions: 2 }", "specific { versions: 2 }"),
    ],
)
def test_version_policy(given_policy: str, expected: str) -> None:
    full = normalise(parse_pbtxt(f"version_policy {{ {given_policy} }}"))
    assert full.version_policy == parse_pbtxt(f"version_policy {{ {expected} }}").version_policy


@pytest.mark.parametrize(("size", "preferred"), [(0, []), (6, [6])])
def test_preferred_batch_size_is_the_largest_one(size: int, preferred: list[int]) -> None:
    dynamic = normalise(parse_pbtxt(f"max_batch_size: {size} dynamic_batching {{}}"))
    assert list(dynamic.dynamic_batching.preferred_batch_size) == preferred
    oldest = normalise(parse_pbtxt(f"max_batch_size: {size} sequence_batching {{ oldest {{}} }}"))
    assert list(oldest.sequence_batching.oldest.preferred_batch_size) == preferred


@pytest.mark.parametrize(("written", "expected"), [("", 1_000_000), ("max_sequence_idle_microseconds: 5", 5)])
def test_sequence_idle_time(written: str, expected: int) -> None:
    full = normalise(parse_pbtxt(f"sequence_batching {{ {written} }}"))
    assert full.sequence_batching.max_sequence_idle_microseconds == expected


def test_pinned_memory_switched_off_stays_off() -> None:
    full = normalise(parse_pbtxt("optimization { input_pinned_memory { enable: false } }"))
    assert full.optimization.HasField("input_pinned_memory")
    assert not full.optimization.input_pinned_memory.enable
    assert full.optimization.output_pinned_memory.enable


def test_an_ensemble_gets_no_instances_and_no_optimization() -> None:
    full = normalise(parse_pbtxt('platform: "ensemble" ensemble_scheduling { step {} }'))
    assert not full.instance_group
    assert not full.HasField("optimization")
    assert not full.backend


@pytest.mark.parametrize(
    ("group", "gpu_count", "expected"),
    [
        ("", 0, ("m_0", CPU, 2, [])),
        ("", 2, ("m_0", GPU, 1, [0, 1])),
        ("", None, ("m_0", AUTO, 0, [])),
        ("gpus: 1", 2, ("m_0", GPU, 1, [1])),
        ("gpus: 5", 2, ("m_0", CPU, 2, [5])),
        ("kind: KIND_GPU gpus: 5 count: 3", 2, ("m_0", GPU, 3, [5])),
        ("kind: KIND_CPU name: 'cpu' count: -1", 2, ("cpu", CPU, 2, [])),
        ("kind: KIND_MODEL", 2, ("m_0", ModelInstanceGroup.KIND_MODEL, 1, [])),
    ],
)
def test_instance_groups(group: str, gpu_count: int | None, expected: tuple[str, int, int, list[int]]) -> None:
    config = parse_pbtxt(f'name: "m" backend: "onnxruntime" instance_group {{ {group} }}')
    result = normalise(config, gpu_count=gpu_count).instance_group[0]
    assert (result.name, result.kind, result.count, list(result.gpus)) == expected


def test_other_backends_get_one_instance_on_a_cpu() -> None:
    group = normalise(parse_pbtxt('name: "m" backend: "python"')).instance_group[0]
    assert (group.name, group.count) == ("m", 1)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('backend: "onnxruntime"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('platform: "tensorrt_plan"', ("tensorrt", "tensorrt_plan", "model.plan")),
        ('backend: "pytorch"', ("pytorch", "pytorch_libtorch", "model.pt")),
        ('backend: "pytorch" platform: "torch_aoti"', ("pytorch", "torch_aoti", "model.pt2")),
        ('backend: "pytorch" default_model_filename: "model.pt2"', ("pytorch", "torch_aoti", "model.pt2")),
        ('backend: "pytorch" runtime: "model.py"', ("pytorch", "pytorch_libtorch", "model.py")),
        ('default_model_filename: "model.py"', ("python", "", "model.py")),
        ('backend: "python" default_model_filename: "main.py"', ("python", "", "main.py")),
        ('backend: "openvino"', ("openvino", "", "model.xml")),
        ('backend: "mine"', ("mine", "", "")),
        ('default_model_filename: "x.bin"', ("", "", "x.bin")),
    ],
)
def test_backend_platform_and_file_follow_from_each_other(written: str, expected: tuple[str, str, str]) -> None:
    full = normalise(parse_pbtxt(written))
    assert (full.backend, full.platform, full.default_model_filename) == expected


@pytest.mark.parametrize(
    ("written", "files", "expected"),
    [
        ("", ["model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ("", ["labels.txt", "model.py"], ("python", "", "model.py")),
        ("", ["model.py", "model.plan"], ("tensorrt", "tensorrt_plan", "model.plan")),
        ("", ["model.savedmodel"], ("tensorflow", "tensorflow_savedmodel", "model.savedmodel")),
        ("", [], ("identity", "", "model.identity")),
        ('backend: "mine"', ["model.onnx"], ("mine", "", "")),
        ('platform: "ensemble"', [], ("", "ensemble", "")),
    ],
)
def test_the_version_folder_tells_the_backend(written: str, files: list[str], expected: tuple[str, str, str]) -> None:
    found = detect_backend(parse_pbtxt(written), files, model_name="model.identity")
    assert (found.backend, found.platform, found.default_model_filename) == expected


@pytest.mark.parametrize("written", ["", 'default_model_filename: "x.bin"'])
def test_nothing_tells_the_backend(written: str) -> None:
    with pytest.raises(ContractError) as caught:
        detect_backend(parse_pbtxt(written), ["x.bin"], model_name="plain")
    assert caught.value.field == "backend"
    assert str(caught.value) == (
        "Invalid model name: Could not determine backend for model 'plain' with no backend in model configuration. "
        "Expected model name of the form 'model.<backend_name>'."
    )
