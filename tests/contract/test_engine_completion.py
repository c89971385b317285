"""Configs and TensorRT engines: what is filled in fits, whatever the engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, check_signature, complete, parse_pbtxt, problems
from serving_node.contract.signature import ModelSignature, TensorSignature

TYPES = st.sampled_from(["FP32", "FP16", "BF16", "INT32", "INT64", "INT8", "UINT8", "BOOL"])
BASE = 'name: "m" platform: "tensorrt_plan"'


@st.composite
def engines(draw: st.DrawFn) -> ModelSignature:
    """Engines with and without batches, and with shape tensors of at least two elements."""
    batch = draw(st.sampled_from([-1, 8]))

    def tensors(prefix: str) -> tuple[TensorSignature, ...]:
        found = []
        for index in range(draw(st.integers(1, 3))):
            rest = tuple(draw(st.lists(st.sampled_from([-1, 1, 3, 16]), max_size=3)))
            found.append(TensorSignature(f"{prefix}{index}", draw(TYPES), (batch, *rest)))
        if draw(st.booleans()):
            length = draw(st.integers(2, 5))
            found.append(TensorSignature(f"{prefix}s", "INT64", (length,), is_shape_tensor=True))
        return tuple(found)

    return ModelSignature(tensors("x"), tensors("y"), max_batch_size=draw(st.sampled_from([0, 1, 8])))


@given(engines())
def test_a_completed_config_fits_its_engine_and_stays(engine: ModelSignature) -> None:
    config = complete(parse_pbtxt(BASE), engine)
    assert config.max_batch_size == engine.max_batch_size
    assert config.HasField("dynamic_batching") == (config.max_batch_size > 1)
    assert check_signature(config, engine) == []
    assert list(problems(config, gpu_count=1)) == []
    again = complete(config, engine)
    # what completion wrote leaves room for rows exactly when there are some
    assert again == config


def refused(config: ModelConfig, engine: ModelSignature) -> ContractError | None:
    try:
        complete(config, engine)
    except ContractError as error:
        return error
    return None


@given(engines(), st.integers(0, 3), st.integers(-2, 9))
def test_any_other_config_is_completed_or_refused_in_one_sentence(
    engine: ModelSignature, rank: int, max_batch_size: int
) -> None:
    config = ModelConfig(name="m", platform="tensorrt_plan", max_batch_size=max_batch_size)
    config.input.add(name="x0", dims=[1] * rank)
    refusal = refused(config, engine)
    assert refusal is None or ("\n" not in refusal.message and refusal.field)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [4] } input { name: "s" data_type: TYPE_INT64 dims: [3]'
            ' is_shape_tensor: true } output { name: "y" data_type: TYPE_FP32 dims: [-1] }',
            "unable to autofill for 'm', model tensor configurations are contradicting each other in terms of whether"
            " batching is supported",
        ),
        ('output { name: "z" dims: [4] }', "unexpected inference output 'z', allowed outputs are: y"),
    ],
)
def test_contradictions_are_told_with_tritons_words(config: str, text: str) -> None:
    engine = ModelSignature(
        (TensorSignature("x", "FP32", (-1, 4)), TensorSignature("s", "INT64", (3,), is_shape_tensor=True)),
        (TensorSignature("y", "FP32", (-1, -1)),),
        max_batch_size=8,
    )
    with pytest.raises(ContractError) as caught:
        complete(parse_pbtxt(f"{BASE} {config}"), engine)
    assert caught.value.message == text


def test_an_engine_without_batches_refuses_dims_that_leave_room_for_them() -> None:
    engine = ModelSignature(
        (TensorSignature("x", "FP32", (2, 4)), TensorSignature("n", "FP32", ())),
        (TensorSignature("y", "FP32", (2,)),),
        max_batch_size=0,
    )
    with pytest.raises(ContractError) as caught:
        complete(parse_pbtxt(f'{BASE} input {{ name: "x" dims: [4] }}'), engine)
    assert caught.value.message == (
        "autofill failed for model 'm': model tensor shape configuration hints for dynamic batching but the underlying"
        " engine doesn't support batching."
    )


def test_outputs_and_inputs_of_the_engine_must_all_be_there() -> None:
    engine = ModelSignature(
        (TensorSignature("x", "FP32", (-1, 4)), TensorSignature("w", "FP32", (-1, 4))),
        (TensorSignature("y", "FP32", (-1, 2)), TensorSignature("z", "FP32", (-1, 2))),
        max_batch_size=8,
    )
    config = parse_pbtxt(
        f'{BASE} max_batch_size: 8 input {{ name: "x" data_type: TYPE_FP32 dims: [4] }}'
        ' output { name: "y" data_type: TYPE_FP32 dims: [2] }'
    )
    assert [one.message for one in check_signature(config, engine)] == [
        "expected configuration for input 'w' for m_0",
        "expected configuration for output 'z' for m_0",
    ]
