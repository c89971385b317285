"""Configs beside the model files they are for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.datatypes import WIRE_NAMES
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import (
    ModelConfig,
    check_signature,
    complete,
    default_config,
    normalise,
    parse_pbtxt,
    validate,
)
from serving_node.contract.signature import ModelSignature, TensorSignature

BATCHED = ModelSignature(
    (TensorSignature("X", "FP32", (-1, 16)),),
    (TensorSignature("Y", "BYTES", (-1, -1)), TensorSignature("S", "INT64", (-1,))),
)
FIXED = ModelSignature((TensorSignature("X", "FP32", (1, 16)),), (TensorSignature("Y", "FP32", ()),))


def test_a_batchable_model_is_completed_with_batching() -> None:
    config = complete(parse_pbtxt('name: "m"'), BATCHED)
    assert config == parse_pbtxt("""
        name: "m" max_batch_size: 4 dynamic_batching {}
        input { name: "X" data_type: TYPE_FP32 dims: 16 }
        output { name: "Y" data_type: TYPE_STRING dims: -1 }
        output { name: "S" data_type: TYPE_INT64 dims: 1 reshape {} }
    """)


def test_a_fixed_model_is_completed_without_batching() -> None:
    config = complete(parse_pbtxt('name: "m"'), FIXED)
    assert config == parse_pbtxt("""
        name: "m"
        input { name: "X" data_type: TYPE_FP32 dims: [1, 16] }
        output { name: "Y" data_type: TYPE_FP32 dims: 1 }
    """)


@pytest.mark.parametrize(
    ("written", "size", "dynamic"),
    [
        ("max_batch_size: 1", 1, False),
        ("max_batch_size: 2", 2, True),
        ("max_batch_size: 2 sequence_batching {}", 2, False),
        ("sequence_batching {}", 4, False),
        ('input { name: "X" data_type: TYPE_FP32 dims: 16 }', 4, True),
        ('input { name: "X" data_type: TYPE_FP32 dims: [-1, 16] }', 0, False),
        ('input { name: "unknown" data_type: TYPE_FP32 dims: 16 }', 0, False),
    ],
)
def test_batching_that_is_written_is_kept(written: str, size: int, dynamic: bool) -> None:
    config = complete(parse_pbtxt(written), BATCHED)
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (size, dynamic)


def test_a_config_with_both_sides_is_left_alone() -> None:
    config = parse_pbtxt('input { name: "X" dims: 16 } output { name: "Y" dims: 1 }')
    assert complete(config, BATCHED) == config


def test_inputs_that_the_server_feeds_are_not_filled_in() -> None:
    signature = ModelSignature(
        tuple(TensorSignature(name, "FP32", (-1, 1)) for name in ("X", "START", "STATE_IN", "LENGTHS")),
        tuple(TensorSignature(name, "FP32", (-1, 1)) for name in ("Y", "STATE_OUT")),
    )
    config = complete(
        parse_pbtxt("""
            name: "m" backend: "onnxruntime"
            sequence_batching {
              control_input { name: "START" control { fp32_false_true: [0, 1] } }
              state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: 1 }
            }
            batch_input { target_name: "LENGTHS" source_input: "X" data_type: TYPE_FP32 }
        """),
        signature,
    )
    assert [tensor.name for tensor in config.input] == ["X"]
    assert [tensor.name for tensor in config.output] == ["Y"]
    validate(config)
    assert check_signature(config, signature) == []


def test_batching_a_model_that_cannot_is_refused() -> None:
    with pytest.raises(ContractError) as caught:
        complete(parse_pbtxt('name: "m" max_batch_size: 2'), FIXED)
    assert caught.value.message == (
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified"
    )
    assert caught.value.field == "max_batch_size"


def test_default_config_of_a_batchable_upload() -> None:
    config = default_config("m", BATCHED)
    assert (config.backend, config.platform, config.default_model_filename) == (
        "onnxruntime",
        "onnxruntime_onnx",
        "model.onnx",
    )
    assert config.max_batch_size == 8
    assert config.HasField("dynamic_batching")
    assert default_config("m", BATCHED, backend="python").default_model_filename == "model.py"


_SHAPES = st.lists(st.just(-1) | st.integers(1, 5), max_size=3).map(tuple)
_TENSORS = st.lists(
    st.builds(TensorSignature, st.from_regex(r"[a-z]{1,3}", fullmatch=True), st.sampled_from(WIRE_NAMES), _SHAPES),
    min_size=1,
    max_size=3,
    unique_by=lambda tensor: tensor.name,
).map(tuple)


@given(st.builds(ModelSignature, _TENSORS, _TENSORS))
def test_the_default_config_of_any_model_is_valid_and_fits(signature: ModelSignature) -> None:
    config = default_config("m", signature)
    validate(config, model_name="m")
    validate(normalise(config))
    assert check_signature(config, signature) == []
    assert config.max_batch_size == (8 if signature.is_batchable else 0)


@pytest.mark.parametrize(
    ("written", "signature", "field", "message"),
    [
        (
            'max_batch_size: 4 input { name: "X" data_type: TYPE_FP32 dims: [16, 1] }',
            BATCHED,
            "input[0].dims",
            "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,16]) but the model "
            "configuration specifies 3 dimensions (an initial batch dimension because max_batch_size > 0 followed by "
            "the explicit tensor shape, making complete shape [-1,16,1])",
        ),
        (
            'input { name: "X" data_type: TYPE_FP32 dims: 16 }',
            BATCHED,
            "input[0].dims",
            "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,16]) but the model "
            "configuration specifies 1 dimensions (shape [16])",
        ),
        (
            'input { name: "X" data_type: TYPE_FP32 dims: 16 reshape { shape: [4, 4] } }',
            BATCHED,
            "input[0].dims",
            "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,16]) but the model "
            "configuration specifies 2 dimensions (shape [4,4])",
        ),
        (
            'max_batch_size: 4 input { name: "X" data_type: TYPE_FP32 dims: 16 }',
            FIXED,
            "input[0].dims",
            "model 'm', tensor 'X': for the model to support batching the shape should have at least 1 dimension and "
            "the first dimension must be -1; but shape expected by the model is [1,16]",
        ),
        (
            'input { name: "X" data_type: TYPE_INT32 dims: [1, 16] }',
            FIXED,
            "input[0].data_type",
            "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'X', model provides "
            "TYPE_FP32",
        ),
        ('input { name: "U" }', FIXED, "input[0].name", "unexpected inference input 'U', allowed inputs are: X"),
        (
            'output { name: "U" }',
            BATCHED,
            "output[0].name",
            "unexpected inference output 'U', allowed outputs are: S, Y",
        ),
        (
            'input { name: "X" } input { name: "Z" }',
            FIXED,
            "input",
            "unable to load model 'm', configuration expects 2 inputs, model provides 1",
        ),
    ],
)
def test_a_config_that_does_not_fit_its_model_is_explained(
    written: str, signature: ModelSignature, field: str, message: str
) -> None:
    errors = check_signature(parse_pbtxt('name: "m" ' + written), signature)
    assert (field, message) in [(error.field, error.message) for error in errors]


def test_a_config_may_fix_dimensions_and_leave_outputs_out() -> None:
    config = parse_pbtxt("""
        max_batch_size: 2 input { name: "X" data_type: TYPE_FP32 dims: -1 }
        output { name: "Y" data_type: TYPE_STRING dims: 7 }
    """)
    assert check_signature(config, BATCHED) == []


def test_completion_does_not_change_its_argument() -> None:
    config = ModelConfig(name="m")
    complete(config, BATCHED)
    assert config == ModelConfig(name="m")


@pytest.mark.parametrize(
    ("results", "names", "refused"),
    [
        (("OUTPUT__0",), ("sentence_embedding",), []),
        (("OUTPUT__0", "OUTPUT__1"), ("scores", "boxes"), []),
        (("OUTPUT__0", "OUTPUT__1"), ("boxes__1",), []),
        (("OUTPUT__0",), ("OUTPUT__0",), []),
        (("OUTPUT__0",), ("scores", "boxes"), ["output[0].name", "output[1].name"]),
        (("scores",), ("sentence_embedding",), ["output[0].name"]),
    ],
)
def test_results_of_pytorch_without_names_are_meant_in_order(
    results: tuple[str, ...], names: tuple[str, ...], refused: list[str]
) -> None:
    signature = ModelSignature(
        inputs=(TensorSignature("ids", "INT64", (-1, 32)),),
        outputs=tuple(TensorSignature(name, "FP32", (-1, 64)) for name in results),
    )
    outputs = "".join(f'output {{ name: "{name}" data_type: TYPE_FP32 dims: 64 }} ' for name in names)
    ids = 'input { name: "ids__0" data_type: TYPE_INT64 dims: 32 } '
    config = parse_pbtxt(f'name: "m" backend: "pytorch" max_batch_size: 8 {ids} {outputs}')
    assert [error.field for error in check_signature(config, signature)] == refused
    config.backend = "onnxruntime"
    assert [error.field for error in check_signature(config, signature)][:1] == ["input[0].name"]
