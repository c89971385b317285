"""Warm-up samples: where their bytes come from, and what happens when one fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor
from serving_node.scheduling.io_rules import IoRules
from serving_node.scheduling.warmup import warm_up

IO = """
    name: "m" max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [-1] }
    input { name: "s" data_type: TYPE_STRING dims: [2] }
    input { name: "b" data_type: TYPE_BOOL dims: [3] optional: true }
    output { name: "y" data_type: TYPE_FP32 dims: [-1] }
"""
STRINGS = ' inputs { key: "s" value { data_type: TYPE_STRING dims: [2] %s } }'


class Recorder:
    """An instance that keeps what it is given; ``refuse`` makes it fail."""

    def __init__(self, refuse: bool = False) -> None:
        self.batches: list[list[InferenceRequest]] = []
        self.refuse = refuse

    def execute(self, execution: Execution) -> None:
        self.batches.append(execution.requests)
        if self.refuse:
            raise InferenceError(ErrorCode.INVALID_ARG, "not like this")
        execution.results.extend([] for _ in execution.requests)

    def close(self) -> None: ...


def warm(
    folder: Path, sample: str, instance: Recorder | None = None, *, zeros: bool = True
) -> list[list[InferenceRequest]]:
    instance = instance or Recorder()
    config = parse_pbtxt(IO + (f"model_warmup {{ {sample} }}" if sample else ""))
    warm_up(instance, IoRules(config), config, folder, name="m_0", zeros=zeros)
    return instance.batches


def x_input(kind: str) -> str:
    return f' inputs {{ key: "x" value {{ data_type: TYPE_FP32 dims: [2] {kind} }} }}'


def test_without_samples_one_request_of_zeros_runs(tmp_path: Path) -> None:
    [[request]] = warm(tmp_path, "")
    assert [(tensor.name, tensor.shape) for tensor in request.inputs] == [("x", (1, 1)), ("s", (1, 2))]
    assert not any(any(tensor.data) for tensor in request.inputs)


def test_a_sample_of_a_batch_size_is_so_many_requests_so_many_times(tmp_path: Path) -> None:
    sample = 'name: "w" batch_size: 3 count: 2' + x_input("zero_data: true") + STRINGS % "zero_data: true"
    assert [len(batch) for batch in warm(tmp_path, sample)] == [3, 3, 1]
    assert [len(batch) for batch in warm(tmp_path, sample.replace("batch_size: 3", "batch_size: 0"))] == [1]


def test_random_data_fit_every_kind_of_tensor(tmp_path: Path) -> None:
    flags = ' inputs { key: "b" value { data_type: TYPE_BOOL dims: [3] random_data: true } }'
    sample = 'name: "w" batch_size: 1' + x_input("random_data: true") + STRINGS % "random_data: true" + flags
    [[request], _] = warm(tmp_path, sample)
    x, s, b = (tensor.as_numpy() for tensor in request.inputs)
    assert (x.shape, s.shape, b.shape) == ((1, 2), (1, 2), (1, 3))
    assert np.all((x >= 0) & (x < 1))
    assert set(request.inputs[2].data) <= {0, 1}


def test_data_come_from_a_file_of_the_warmup_folder(tmp_path: Path) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "x.bin").write_bytes(np.array([1.5, -2.0], np.float32).tobytes())
    sample = 'name: "w" batch_size: 1' + x_input('input_data_file: "x.bin"') + STRINGS % "zero_data: true"
    [[request], _] = warm(tmp_path, sample)
    assert request.inputs[0].as_numpy().tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("../secret", "warmup file '../secret' lies outside the folder 'warmup'"),
        ("/etc/passwd", "lies outside the folder 'warmup'"),
        ("none", "failed to open text file for read .*/warmup/none: No such file or directory"),
        ("link", "lies outside the folder 'warmup'"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "secret").write_bytes(bytes(8))
    (tmp_path / "warmup" / "link").symlink_to(tmp_path / "secret")
    sample = 'name: "w" batch_size: 1' + x_input(f'input_data_file: "{name}"') + STRINGS % "zero_data: true"
    with pytest.raises(InferenceError, match=sentence) as caught:
        warm(tmp_path, sample)
    assert caught.value.code is (ErrorCode.INTERNAL if name == "none" else ErrorCode.INVALID_ARG)


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        (
            'batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [-1] zero_data: true } }',
            "warmup setting expects all variable-size dimensions are specified for input 'x'",
        ),
        (
            'batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [1] } }',
            "[request id: <id_unknown>] warmup setting expects input 'x' to have input_data_type set",
        ),
        (
            'batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [4] input_data_file: "short" } }',
            "[request id: <id_unknown>] warmup setting expects 16 bytes, but the data provided from short only has 3"
            " bytes",
        ),
        (
            'batch_size: 1 inputs { key: "x" value { data_type: TYPE_INT32 dims: [1] zero_data: true } }'
            + STRINGS % "zero_data: true",
            "[request id: <id_unknown>] inference input 'x' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            "batch_size: 6" + x_input("zero_data: true") + STRINGS % "zero_data: true",
            "failed to run warmup sample 'w': " + "batch size 6 for 'm_0', max allowed is 4; " * 6,
        ),
    ],
)
def test_samples_that_do_not_fit_are_refused_in_tritons_words(tmp_path: Path, sample: str, sentence: str) -> None:
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "short").write_bytes(b"abc")
    with pytest.raises(InferenceError) as caught:
        warm(tmp_path, f'name: "w" {sample}', zeros=False)
    assert caught.value.message == sentence


def test_inputs_that_the_model_does_not_have_are_left_out(tmp_path: Path) -> None:
    other = ' inputs { key: "START" value { data_type: TYPE_FP32 dims: [1] zero_data: true } }'
    sample = 'name: "w" batch_size: 1' + x_input("zero_data: true") + STRINGS % "zero_data: true" + other
    [[request]] = warm(tmp_path, sample, zeros=False)
    assert [tensor.name for tensor in request.inputs] == ["x", "s"]


def test_nothing_runs_that_nobody_asked_for(tmp_path: Path) -> None:
    assert warm(tmp_path, "", zeros=False) == []


def test_a_sample_that_the_model_refuses_fails_the_load_but_zeros_may_be_refused(tmp_path: Path) -> None:
    sample = 'name: "w" batch_size: 1' + x_input("zero_data: true") + STRINGS % "zero_data: true"
    with pytest.raises(InferenceError, match="failed to run warmup sample 'w': not like this"):
        warm(tmp_path, sample, Recorder(refuse=True))
    assert len(warm(tmp_path, "", Recorder(refuse=True))) == 1


def test_what_the_node_itself_feeds_is_there_too_and_a_sample_may_say_what(tmp_path: Path) -> None:
    instance = Recorder()
    start = ' inputs { key: "START" value { data_type: TYPE_INT32 dims: [1] random_data: true } }'
    sample = 'name: "w" batch_size: 1' + x_input("zero_data: true") + STRINGS % "zero_data: true" + start
    config = parse_pbtxt(f"{IO} model_warmup {{ {sample} }}")
    added = [Tensor(name, "INT32", (1, 1), bytes(4)) for name in ("START", "READY")]
    warm_up(instance, IoRules(config), config, tmp_path, name="m_0", zeros=True, added=added)
    [[sampled], [zeros]] = instance.batches
    assert [tensor.name for tensor in sampled.inputs] == ["x", "s", "START", "READY"]
    assert any(sampled.inputs[2].data) and not any(sampled.inputs[3].data)
    assert zeros.inputs[2:] == added
