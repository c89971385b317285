"""Every rule of a config, with the words that Triton's users know (``m`` is the model)."""

from __future__ import annotations

import pytest
from hypothesis import given

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, normalise, parse_pbtxt, problems, validate
from tests.contract.configs import model_configs

IO = 'input { name: "X" data_type: TYPE_FP32 dims: 4 } output { name: "Y" data_type: TYPE_FP32 dims: 4 } '
HEAD = 'name: "m" backend: "onnxruntime" '
BASE = HEAD + "max_batch_size: 8 " + IO
ENSEMBLE = 'name: "m" platform: "ensemble" ' + IO
STEP = 'step { model_name: "a" input_map { key: "i" value: "X" } output_map { key: "o" value: "Y" } } '


def _input(text: str, mbs: int = 8) -> str:
    tensor = f'input {{ name: "X" {text} }} output {{ name: "Y" data_type: TYPE_FP32 dims: 4 }}'
    return f"{HEAD} max_batch_size: {mbs} {tensor}"


def _control(*controls: str) -> str:
    return BASE + "sequence_batching {" + " ".join(f"control_input {{ {control} }}" for control in controls) + "}"


START = 'name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }'

BROKEN = [
    # identity
    ('backend: "python" ' + IO, "name", "model configuration must specify 'name'"),
    ('name: "a/b" backend: "python" ' + IO, "name", "model name 'a/b' cannot be the name of a folder"),
    ('name: ".." backend: "python" ' + IO, "name", "model name '..' cannot be the name of a folder"),
    ('name: " m" backend: "python" ' + IO, "name", "model name ' m' cannot be the name of a folder"),
    ('name: "m" ' + IO, "platform", "unexpected platform type '' for m"),
    ('name: "m" platform: "nope" ' + IO, "platform", "unexpected platform type 'nope' for m"),
    (
        'name: "m" backend: "onnxruntime" platform: "tensorrt_plan" ' + IO,
        "platform",
        "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime",
    ),
    (HEAD + "max_batch_size: -1 " + IO, "max_batch_size", "'max_batch_size' must be non-negative value for m"),
    # dynamic batching
    (
        BASE + "dynamic_batching { preferred_batch_size: 0 }",
        "dynamic_batching.preferred_batch_size[0]",
        "dynamic batching preferred size must be positive for m",
    ),
    (
        BASE + "dynamic_batching { preferred_batch_size: [4, 9] }",
        "dynamic_batching.preferred_batch_size[1]",
        "dynamic batching preferred size must be <= max batch size for m",
    ),
    (
        BASE + "dynamic_batching { priority_levels: 3 }",
        "dynamic_batching.default_priority_level",
        "default priority level must be in range [1, 3] for m",
    ),
    (
        BASE + "dynamic_batching { priority_levels: 3 default_priority_level: 4 }",
        "dynamic_batching.default_priority_level",
        "default priority level must be in range [1, 3] for m",
    ),
    (
        BASE
        + "dynamic_batching { priority_levels: 3 default_priority_level: 1 priority_queue_policy { key: 4 value {} } }",
        "dynamic_batching.priority_queue_policy[4]",
        "priority queue policy must have priority level in range [1, 3] for m",
    ),
    (
        BASE + "dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }",
        "dynamic_batching.preserve_ordering",
        "Only one priority level is allowed when 'preserve_ordering' is true for m",
    ),
    (
        BASE
        + "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY"
        + " default_timeout_microseconds: 1 } }",
        "dynamic_batching.default_queue_policy.timeout_action",
        "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
    ),
    (
        BASE
        + "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1"
        + " priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } } }",
        "dynamic_batching.priority_queue_policy[1].timeout_action",
        "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
    ),
    # sequence batching
    (
        _control("control { }"),
        "sequence_batching.control_input[0].name",
        "sequence batching control tensor must have a name for m",
    ),
    (
        _control(START, 'name: "START"'),
        "sequence_batching.control_input[1].name",
        "sequence batching control tensor 'START' is specified for multiple control kinds for m",
    ),
    (
        _control(START, START.replace('"START"', '"OTHER"')),
        "sequence_batching.control_input[1].control[0]",
        "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
    ),
    (
        _control('name: "R" control { kind: CONTROL_SEQUENCE_READY }'),
        "sequence_batching.control_input[0].control[0]",
        "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
        "CONTROL_SEQUENCE_READY for m",
    ),
    (
        _control(
            'name: "E" control { kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1] bool_false_true: [false, true] }'
        ),
        "sequence_batching.control_input[0].control[0]",
        "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' "
        "for CONTROL_SEQUENCE_END for m",
    ),
    (
        _control('name: "E" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1, 2] }'),
        "sequence_batching.control_input[0].control[0].fp32_false_true",
        "sequence batching control 'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_END for m",
    ),
    (
        _control('name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 }'),
        "sequence_batching.control_input[0].control[0].data_type",
        "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, "
        "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
    ),
    (
        _control('name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 int32_false_true: [0, 1] }'),
        "sequence_batching.control_input[0].control[0]",
        "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
        "CONTROL_SEQUENCE_CORRID for m",
    ),
    (
        BASE + "sequence_batching { oldest { preferred_batch_size: -1 } }",
        "sequence_batching.oldest.preferred_batch_size[0]",
        "sequence batching preferred batch size must be positive for m",
    ),
    (
        BASE + "sequence_batching { oldest { preferred_batch_size: 9 } }",
        "sequence_batching.oldest.preferred_batch_size[0]",
        "sequence batching preferred batch size must be <= max batch size for m",
    ),
    (
        BASE + "sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
        "sequence_batching.direct.minimum_slot_utilization",
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
    ),
    # cache
    (
        BASE + "response_cache { enable: true } sequence_batching {}",
        "response_cache.enable",
        "Response Cache does not currently support model m with sequence batching scheduler. Please disable the "
        "response cache.",
    ),
    (
        BASE + "response_cache { enable: true } model_transaction_policy { decoupled: true }",
        "response_cache.enable",
        "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable the "
        "response cache.",
    ),
    # metrics
    (
        BASE + "model_metrics { metric_control { histogram_options { buckets: 1 } } }",
        "model_metrics.metric_control[0].metric_identifier",
        "metric control must specify 'metric_identifier'",
    ),
    (
        BASE + "model_metrics { metric_control { metric_identifier {} histogram_options { buckets: 1 } } }",
        "model_metrics.metric_control[0].metric_identifier.family",
        "metric identifier must specify non-empty 'family'",
    ),
    (
        BASE + 'model_metrics { metric_control { metric_identifier { family: "f" } } }',
        "model_metrics.metric_control[0].histogram_options",
        "metric control must specify 'histogram_options'",
    ),
    (
        BASE + 'model_metrics { metric_control { metric_identifier { family: "f" } histogram_options {} } }',
        "model_metrics.metric_control[0].histogram_options.buckets",
        "histogram options must specify non-empty 'buckets'",
    ),
    # tensors
    (HEAD + "output { name: 'Y' data_type: TYPE_FP32 dims: 4 }", "input", "must specify at least one 'input' for m"),
    (HEAD + "input { name: 'X' data_type: TYPE_FP32 dims: 4 }", "output", "must specify at least one 'output' for m"),
    (BASE + "input { data_type: TYPE_FP32 dims: 4 }", "input[1].name", "model input must specify 'name' for m"),
    (BASE + "output { data_type: TYPE_FP32 dims: 4 }", "output[1].name", "model output must specify 'name' for m"),
    (
        BASE + 'input { name: "X" data_type: TYPE_FP32 dims: 4 }',
        "input[1].name",
        "model input 'X' is specified more than once for m",
    ),
    (_input("dims: 4"), "input[0].data_type", "model input 'X' must specify 'data_type' for m"),
    (_input("data_type: TYPE_FP32"), "input[0].dims", "model input 'X' must specify 'dims' for m"),
    (
        _input("data_type: TYPE_FP32 dims: [4, 0]"),
        "input[0].dims",
        "model input 'X' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: 4 reshape { shape: [0] }"),
        "input[0].reshape",
        "model input 'X' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: 4 reshape { shape: [5] }"),
        "input[0].reshape",
        "model input 'X' has different size for dims and reshape for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: 4 reshape { shape: [-1] }"),
        "input[0].reshape",
        "model input 'X' has different size for dims and reshape for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: [2, 4, -1, 6] reshape { shape: [8, -1, 1, 5] }"),
        "input[0].reshape",
        "model input 'X' has different size for dims and reshape for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: [-1, -1] reshape { shape: [-1] }"),
        "input[0].reshape",
        "model input 'X' has different number of variable-size dimensions for dims and reshape for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: 1 reshape {}", mbs=0),
        "input[0].reshape",
        "model input 'X' cannot have empty reshape for non-batching model as scalar tensors are not supported for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: [4, 4] format: FORMAT_NHWC"),
        "input[0].format",
        "model input NHWC/NCHW require 3 dims for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: 4 is_shape_tensor: true"),
        "input[0].is_shape_tensor",
        "shape tensors are only supported for TensorRT platform for m",
    ),
    (
        _input("data_type: TYPE_FP32 dims: 4 is_non_linear_format_io: true"),
        "input[0].is_non_linear_format_io",
        "Non-linear IO format is only supported for the TensorRT platform for m",
    ),
    (
        'name: "m" platform: "tensorrt_plan" input { name: "X" data_type: TYPE_FP32 dims: 4'
        ' is_non_linear_format_io: true } output { name: "Y" data_type: TYPE_FP32 dims: 4 }',
        "input[0].is_non_linear_format_io",
        "Non-linear IO format input requires 3 dims for m",
    ),
    # batch inputs and outputs
    (
        BASE + "batch_input { data_type: TYPE_FP32 kind: BATCH_ITEM_SHAPE }",
        "batch_input[0].source_input",
        "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0 for m",
    ),
    (
        BASE + 'batch_input { data_type: TYPE_FP64 source_input: "X" }',
        "batch_input[0].data_type",
        "batch input data type must be TYPE_INT32 or TYPE_FP32 for m",
    ),
    (
        BASE + 'batch_input { data_type: TYPE_FP32 source_input: "U" }',
        "batch_input[0].source_input[0]",
        "unknown source input name 'U' for m",
    ),
    (
        BASE + 'batch_output { source_input: ["X", "X"] }',
        "batch_output[0].source_input",
        "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 2 for m",
    ),
    (
        BASE + 'batch_output { source_input: "U" }',
        "batch_output[0].source_input[0]",
        "unknown source input name 'U' for m",
    ),
    (
        BASE + 'batch_output { source_input: "X" target_name: "U" }',
        "batch_output[0].target_name[0]",
        "unknown target output name 'U' for m",
    ),
    (
        BASE + 'batch_output { source_input: "X" target_name: ["Y", "Y"] }',
        "batch_output[0].target_name[1]",
        "target output name 'Y' can only be specified once for m",
    ),
    # instances
    (
        BASE + "instance_group { kind: KIND_CPU gpus: 0 }",
        "instance_group[0].gpus",
        "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
    ),
    (
        BASE + "instance_group {} instance_group { kind: KIND_MODEL gpus: 0 }",
        "instance_group[1].gpus",
        "instance group m_1 of model m has kind KIND_MODEL but specifies one or more GPUs",
    ),
    (
        BASE + 'instance_group { profile: "0" }',
        "instance_group[0].profile",
        "instance group m_0 of model m and platform onnxruntime_onnx specifies profile field which is only supported "
        "for TensorRT models",
    ),
    (
        'name: "m" platform: "tensorrt_plan" ' + IO + 'instance_group { profile: ["0", "x"] }',
        "instance_group[0].profile",
        "instance group m_0 of model m and platform tensorrt_plan specifies invalid profile x. The field should "
        "contain the string representation of a non-negative integer.",
    ),
    # files
    (BASE + 'runtime: "../x.so"', "runtime", "backend library name '../x.so' escapes backend directory"),
    (
        BASE + 'default_model_filename: "/etc/passwd"',
        "default_model_filename",
        "file name '/etc/passwd' escapes the model directory for m",
    ),
    (
        BASE + 'cc_model_filenames { key: "8.0" value: "a/../../b" }',
        "cc_model_filenames[8.0]",
        "file name 'a/../../b' escapes the model directory for m",
    ),
    (
        HEAD
        + IO.replace("dims: 4 } ", 'dims: 4 label_filename: "..\\\\l" } ').replace(
            'dims: 4 label_filename: "..\\\\l" } output', "dims: 4 } output"
        ),
        "output[0].label_filename",
        "file name '..\\l' escapes the model directory for m",
    ),
    (
        BASE + 'model_operations { op_library_filename: "../lib.so" }',
        "model_operations.op_library_filename[0]",
        "file name '../lib.so' escapes the model directory for m",
    ),
    (
        BASE + 'model_warmup { inputs { key: "X" value { input_data_file: "../x" } } }',
        "model_warmup[0].inputs[X].input_data_file",
        "file name '../x' escapes the model directory for m",
    ),
    (
        BASE + 'sequence_batching { state { initial_state { data_file: "/x" } } }',
        "sequence_batching.state[0].initial_state[0].data_file",
        "file name '/x' escapes the model directory for m",
    ),
    # ensembles
    (
        'name: "m" backend: "python" ' + IO + "ensemble_scheduling { " + STEP + "}",
        "platform",
        "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
    ),
    (
        ENSEMBLE,
        "ensemble_scheduling",
        "ensemble scheduling must be set for ensemble m whose platform is ensemble",
    ),
    (
        ENSEMBLE + 'backend: "python" ensemble_scheduling { ' + STEP + "}",
        "backend",
        "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
    ),
    (
        ENSEMBLE + "instance_group {} ensemble_scheduling { " + STEP + "}",
        "instance_group",
        "instance group should not be specified for ensemble 'm'",
    ),
    (
        ENSEMBLE + "optimization {} ensemble_scheduling { " + STEP + "}",
        "optimization",
        "optimization should not be specified for ensemble 'm'",
    ),
    (
        ENSEMBLE + "model_warmup {} ensemble_scheduling { " + STEP + "}",
        "model_warmup",
        "model_warmup can not be specified for ensemble 'm'",
    ),
    (ENSEMBLE + "ensemble_scheduling {}", "ensemble_scheduling.step", "must specify 'step' for ensemble 'm'"),
    (
        ENSEMBLE + "ensemble_scheduling { " + STEP + "step { input_map { key: 'i' value: 'X' }"
        " output_map { key: 'o' value: 'Z' } } }",
        "ensemble_scheduling.step[1].model_name",
        "must specify 'model_name' in step 1 of ensemble 'm'",
    ),
    (
        ENSEMBLE + "ensemble_scheduling { step { model_name: 'a' output_map { key: 'o' value: 'Y' } } }",
        "ensemble_scheduling.step[0].input_map",
        "must specify 'input_map' in step 0 of ensemble 'm'",
    ),
    (
        ENSEMBLE + "ensemble_scheduling { step { model_name: 'a' input_map { key: 'i' value: 'X' } } }",
        "ensemble_scheduling.step[0].output_map",
        "must specify 'output_map' in step 0 of ensemble 'm'",
    ),
    (
        ENSEMBLE + "ensemble_scheduling { " + STEP + STEP + "}",
        "ensemble_scheduling.step[1].output_map[o]",
        "ensemble tensor 'Y' can appear in an output map only once for ensemble 'm' step 1",
    ),
    (
        ENSEMBLE + "ensemble_scheduling { " + STEP + STEP.replace('"Y"', '"Z"') + "}",
        "ensemble_scheduling.step",
        "ensemble tensor 'Z' is unused in ensemble 'm'",
    ),
    (
        ENSEMBLE + "ensemble_scheduling { " + STEP.replace('"X"', '"Z"') + "}",
        "input[0]",
        "ensemble input 'X' for ensemble m' is not used",
    ),
    (
        ENSEMBLE + "ensemble_scheduling { " + STEP.replace('"Y"', '"Z"') + "}",
        "output[0]",
        "ensemble output 'Y' for ensemble m' is not used",
    ),
    (
        ENSEMBLE
        + "ensemble_scheduling { "
        + STEP.replace("output_map", "input_map { key: 'j' value: 'Q' } output_map")
        + "}",
        "output[0]",
        "output 'Y' for ensemble 'm' is not written: at least one of its depending tensors, 'Q', is not connected",
    ),
    (
        'name: "m" platform: "ensemble" '
        + IO.split("output")[0]
        + 'output { name: "X2" data_type: TYPE_FP32 dims: 4 }'
        + " ensemble_scheduling { step { model_name: 'a' input_map { key: 'i' value: 'X' }"
        " input_map { key: 'j' value: 'X2' } output_map { key: 'o' value: 'Z' } } }",
        "output[0]",
        "output 'X2' for ensemble 'm' is not written",
    ),
]


@pytest.mark.parametrize(("text", "field", "message"), BROKEN)
def test_a_broken_rule_is_named_in_tritons_words(text: str, field: str, message: str) -> None:
    found = [(problem.field, problem.message) for problem in problems(parse_pbtxt(text))]
    assert (field, message) in found
    with pytest.raises(ContractError):
        validate(parse_pbtxt(text))


@pytest.mark.parametrize(
    ("group", "gpu_count", "message"),
    [
        ("kind: KIND_GPU", 0, "instance group m_0 of model m has kind KIND_GPU but no GPUs are available"),
        (
            "kind: KIND_GPU gpus: 42",
            2,
            "instance group m_0 of model m specifies invalid or unsupported gpu id 42. GPUs with at least the minimum "
            "required CUDA compute compatibility of 6.000000 are: 0, 1",
        ),
        ("gpus: 1", 1, "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs"),
    ],
)
def test_gpus_are_checked_where_they_are_known(group: str, gpu_count: int, message: str) -> None:
    config = parse_pbtxt(BASE + f"instance_group {{ {group} }}")
    with pytest.raises(ContractError) as caught:
        validate(config, gpu_count=gpu_count)
    assert caught.value.message == message
    validate(config)


def test_the_first_problem_is_the_one_raised() -> None:
    config = parse_pbtxt("max_batch_size: -1")
    with pytest.raises(ContractError) as caught:
        validate(config)
    assert caught.value.message == "model configuration must specify 'name'"
    assert len(list(problems(config))) > 2


def test_a_name_must_equal_the_folder_and_may_be_left_out() -> None:
    validate(parse_pbtxt(BASE), model_name="m")
    validate(parse_pbtxt(BASE.replace('name: "m" ', "", 1)), model_name="m")
    with pytest.raises(ContractError) as caught:
        validate(parse_pbtxt(BASE), model_name="d")
    assert caught.value.message == "unexpected directory name 'd' for model 'm', directory name must equal model name"


VALID = [
    'name: "m" platform: "tensorrt_plan" input { name: "X" data_type: TYPE_FP32 dims: [1, 2, 3] is_shape_tensor: true'
    ' is_non_linear_format_io: true } output { name: "Y" data_type: TYPE_FP32 dims: 4 }',
    BASE,
    BASE + "dynamic_batching {}",
    BASE + "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }",
    BASE
    + "dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 2 value {} } }",
    _control(START, 'name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING }'),
    BASE + "sequence_batching { oldest { max_candidate_sequences: 4 } }",
    BASE + "response_cache { enable: true }",
    BASE + 'model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { buckets: 1 } } }',
    BASE + "instance_group { kind: KIND_GPU gpus: [0, 1] }",
    BASE + 'batch_input { data_type: TYPE_FP32 source_input: "X" target_name: "L" }',
    BASE + 'batch_output { source_input: "X" target_name: "Y" }',
    BASE + 'default_model_filename: "onnx/model.onnx" model_operations { op_library_filename: "libcustom.so" }',
    _input("data_type: TYPE_FP32 dims: [2, 4, -1, 6] reshape { shape: [8, -1, 1, 6] }"),
    _input("data_type: TYPE_FP32 dims: 1 reshape {}"),
    _input("data_type: TYPE_STRING dims: [3, -1, -1] format: FORMAT_NCHW"),
    'name: "m" backend: "my_backend" platform: "anything" ' + IO,
    'name: "m" platform: "tensorrt_plan" ' + IO + 'instance_group { profile: "1" }',
    ENSEMBLE + "ensemble_scheduling { " + STEP + "}",
    ENSEMBLE + "ensemble_scheduling { " + STEP.replace('"Y"', '"T"') + STEP.replace('"X"', '"T"') + "}",
]


@pytest.mark.parametrize("text", VALID)
def test_a_sound_config_passes_before_and_after_normalising(text: str) -> None:
    config = parse_pbtxt(text)
    before = ModelConfig()
    before.CopyFrom(config)
    validate(config)
    assert config == before
    validate(normalise(config, gpu_count=2), gpu_count=2)


def test_tensors_may_be_missing_before_completion() -> None:
    validate(parse_pbtxt(HEAD), require_tensors=False)


@given(model_configs())
def test_any_config_gets_a_verdict(config: ModelConfig) -> None:
    """Rules never fail on a config that the parser let through."""
    for problem in problems(config, model_name="m", gpu_count=1):
        assert problem.message
