"""Controls and states of sequences with a real engine: small ONNX models that add up what they get."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse, RequestedOutput
from serving_node.core.tensor import Tensor
from serving_node.scheduling.served_model import ServedModel
from tests.serving_node import onnx_models
from tests.serving_node.backends.model_calls import arrays, load

CONTROLS = "".join(
    f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{name} fp32_false_true: [ 0, {yes} ] }} }}'
    for name, yes in (("START", 100), ("READY", 1))
)
STATE = 'input_name: "old" output_name: "new" data_type: TYPE_FP32 dims: [ %s ]'


def config(
    state: str = STATE % 1, *, strategy: str = "direct { }", batch: int = 4, outputs: str = "y", initial: str = ""
) -> str:
    declared = " ".join(f'output {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}' for name in outputs.split())
    return (
        f'backend: "onnxruntime" max_batch_size: {batch} {declared} input {{ name: "x" data_type: TYPE_FP32'
        " dims: [ 1 ] }"
        f" sequence_batching {{ {strategy} {CONTROLS} state {{ {state} {initial} }} }}"
        " instance_group { kind: KIND_CPU count: 1 }"
    )


async def ask(
    model: ServedModel, *steps: tuple[int, str, float], outputs: tuple[str, ...] = ()
) -> list[InferenceResponse]:
    """Send steps (sequence, flags, value) in one turn of the loop; return the responses in their order."""
    responses: dict[str, InferenceResponse] = {}
    done = asyncio.Event()

    def answered(response: InferenceResponse) -> None:
        responses[response.id] = response
        if len(responses) == len(steps):
            done.set()

    for number, (key, flags, value) in enumerate(steps):
        shape = (1, 1) if model.max_batch_size else (1,)
        inputs = [Tensor("x", "FP32", shape, np.float32(value).tobytes())]
        request = InferenceRequest(model.name, "", inputs, answered, str(number), sequence_id=key)
        request.sequence_start, request.sequence_end = "S" in flags, "E" in flags
        request.outputs = [RequestedOutput(name) for name in outputs]
        model.rules.check(request)
        model.submit(request)
    async with asyncio.timeout(30):
        await done.wait()
    return [responses[str(number)] for number in range(len(steps))]


def values(responses: list[InferenceResponse], name: str) -> list[float]:
    return [float(arrays(response)[name].reshape(-1)[0]) for response in responses]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
@pytest.mark.parametrize("batch", [4, 0])
async def test_a_state_goes_from_request_to_request_and_begins_anew_with_start(
    tmp_path: Path, strategy: str, batch: int
) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx", rows="N" if batch else 1)
    model = await load(path.parent, config(strategy=strategy, batch=batch, outputs="y new"))
    steps = [(1, "S", 1.0), (2, "S", 10.0), (1, "", 2.0), (2, "E", 20.0), (1, "S", 5.0), (1, "E", 1.0)]
    responses = await ask(model, *steps)
    assert values(responses, "new") == [1, 10, 3, 30, 5, 6]
    assert values(responses, "y") == [101, 110, 2, 20, 105, 1]  # the start adds 100
    await model.close()


async def test_a_state_that_is_no_output_is_not_shown(tmp_path: Path) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, config())
    (response,) = await ask(model, (1, "S", 1.0))
    assert list(arrays(response)) == ["y"]
    assert [tensor.name for tensor in model.metadata.outputs] == ["y"]
    assert [tensor.name for tensor in model.metadata.inputs] == ["x"]
    await model.close()


@pytest.mark.parametrize("wanted", ["y", "new"])
async def test_clients_choose_among_outputs_and_the_state_is_kept_all_the_same(tmp_path: Path, wanted: str) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, config(outputs="y new"))
    responses = await ask(model, (1, "S", 1.0), (1, "", 2.0), outputs=(wanted,))
    assert [list(arrays(response)) for response in responses] == [[wanted]] * 2
    assert values(await ask(model, (1, "E", 4.0)), "new") == [7]
    await model.close()


async def test_a_row_without_a_request_is_not_ready_and_leaves_the_others_alone(tmp_path: Path) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, config(outputs="y new"))
    await ask(model, (1, "S", 1.0), (2, "S", 2.0), (3, "S", 3.0))
    assert values(await ask(model, (3, "", 4.0)), "new") == [7]
    batches = {
        entry.batch_size: entry.compute_infer.count for entry in model.statistics.to_proto("m", 1, 0).batch_stats
    }
    assert batches == {3: 2}
    assert model.statistics.inference_count == 4
    await model.close()


async def test_states_that_grow_at_their_own_pace(tmp_path: Path) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx", growing=True)
    first = 'initial_state { name: "empty" data_type: TYPE_FP32 dims: [ 0 ] zero_data: true }'
    text = config(STATE % -1, initial=first, outputs="y").replace(
        'output { name: "y"', 'output { name: "new" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "y"'
    )
    model = await load(path.parent, text)
    responses = await ask(model, (1, "S", 1.0), (1, "", 2.0), (2, "S", 9.0), (1, "", 3.0), (2, "", 8.0))
    lines = [arrays(response)["new"].reshape(-1).tolist() for response in responses]
    assert lines == [[1], [1, 2], [9], [1, 2, 3], [9, 8]]
    await model.close()


async def test_the_first_state_comes_from_a_file(tmp_path: Path) -> None:
    path = onnx_models.save_accumulator(tmp_path / "m" / "1" / "model.onnx")
    folder = tmp_path / "m" / "initial_state"
    folder.mkdir()
    (folder / "forty").write_bytes(np.float32(40).tobytes())
    first = 'initial_state { name: "first" data_type: TYPE_FP32 dims: [ 1 ] data_file: "%s" }'
    model = await load(path.parent, config(outputs="y new", initial=first % "forty"))
    assert values(await ask(model, (1, "S", 2.0), (1, "S", 3.0)), "new") == [42, 43]
    await model.close()
    with pytest.raises(InferenceError, match=r"failed to open text file for read .*/initial_state/none: No such file"):
        await load(path.parent, config(initial=first % "none"))
    (folder / "short").write_bytes(b"12")
    with pytest.raises(InferenceError, match="expects 4 bytes, but the data provided from shortonly has 2 bytes"):
        await load(path.parent, config(initial=first % "short"))
    with pytest.raises(InferenceError):
        await load(path.parent, config(initial=first % "../1/model.onnx"))


async def test_a_state_that_does_not_fit_fails_its_request_and_stays_as_it_was(tmp_path: Path) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx", growing=True)
    model = await load(path.parent, config(STATE % 2))
    first, second = await ask(model, (1, "S", 1.0), (1, "E", 1.0))
    for response in (first, second):
        assert response.error is not None
        assert response.error.code is ErrorCode.INTERNAL
        assert response.error.message == "state output 'new' has shape [1, 3], the config says [1, 2]"
    await model.close()


@pytest.mark.parametrize(
    ("right", "wrong", "sentence"),
    [
        ('"new"', '"nothing"', "unexpected inference output 'nothing', allowed outputs are: new, y"),
        ('"old"', '"nothing"', "unexpected inference input 'nothing', allowed inputs are: READY, START, old, x"),
        ('"READY"', '"THERE"', "unexpected inference input 'THERE', allowed inputs are: READY, START, old, x"),
        ("fp32_false_true: [ 0, 1 ]", "int32_false_true: [ 0, 1 ]", "expects datatype TYPE_INT32 for input 'READY'"),
        ('state { input_name: "old" output_name: "new" data_type: TYPE_FP32 dims: [ 1 ]  }', "", "expects 3 inputs"),
    ],
)
async def test_states_and_controls_are_checked_against_the_file(
    tmp_path: Path, right: str, wrong: str, sentence: str
) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx")
    text = config()
    assert text.count(right) == 1
    with pytest.raises(InferenceError) as caught:
        await load(path.parent, text.replace(right, wrong))
    assert sentence in caught.value.message


async def test_instances_do_not_change_in_place_because_sequences_stay_where_they_are(tmp_path: Path) -> None:
    path = onnx_models.save_accumulator(tmp_path / "1" / "model.onnx")
    model = await load(path.parent, config())
    assert model.resize is None  # another number of instances is another load
    await model.close()
