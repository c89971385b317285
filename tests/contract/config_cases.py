# ruff: noqa: E501 (configs read best as lines)
"""Configs of Python models and ensembles, good and bad, that a real Triton was asked to load (record_configs.py)."""

from __future__ import annotations

from dataclasses import dataclass

IN = 'input { name: "IN" data_type: TYPE_FP32 dims: 4 }\n'
OUT = 'output { name: "OUT" data_type: TYPE_FP32 dims: 4 }\n'
IO = IN + OUT
PY = 'backend: "python"\n'
BATCH = PY + "max_batch_size: 8\n" + IO
ENSEMBLE = 'platform: "ensemble"\nmax_batch_size: 8\n' + IO
MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
COMPLETING = (
    "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n{body}\n        return config\n\n"
    "    def execute(self, requests):\n        return []\n"
)


@dataclass(frozen=True)
class Case:
    """A model to load: the text of its config.pbtxt, perhaps none; its code; perhaps a config in the load request."""

    name: str
    config: str | None
    code: str = MODEL
    override: str | None = None
    files: tuple[tuple[str, str], ...] = ()


def _step(model: str = "base", inputs: str = '"IN" "IN"', outputs: str = '"OUT" "OUT"', version: str = "-1") -> str:
    def entries(field: str, text: str) -> str:
        words = text.split()
        pairs = zip(words[::2], words[1::2], strict=True)
        return " ".join(f"{field} {{ key: {key} value: {value} }}" for key, value in pairs)

    name = f'model_name: "{model}" ' if model else ""
    return f"step {{ {name}model_version: {version} {entries('input_map', inputs)} {entries('output_map', outputs)} }}"


def _ensemble(*steps: str) -> str:
    return f"ensemble_scheduling {{ {' '.join(steps)} }}\n"


def _completing(*lines: str) -> str:
    return COMPLETING.format(body="\n".join(f"        {line}" for line in lines))


_ADD_IO = (
    "config.add_input({'name': 'IN', 'data_type': 'TYPE_FP32', 'dims': [4]})",
    "config.add_output({'name': 'OUT', 'data_type': 'TYPE_FP32', 'dims': [4]})",
)

# models that ensembles are made of; loaded with them
BASES = (
    Case("base", BATCH),
    Case("base_int", PY + "max_batch_size: 8\n" + IO.replace("FP32", "INT32")),
    Case("base_wide", PY + "max_batch_size: 8\n" + IO.replace("dims: 4", "dims: 16")),
    Case("base_small", PY + "max_batch_size: 2\n" + IO),
    Case("base_flat", PY + IO),
    Case("base_free", PY + "max_batch_size: 8\n" + IO.replace("dims: 4", "dims: -1")),
    Case("base_decoupled", BATCH + "model_transaction_policy { decoupled: true }\n"),
    Case("base_two", BATCH + IO.replace('"IN"', '"IN2"').replace('"OUT"', '"OUT2"')),
    Case("base_optional", BATCH + 'input { name: "EXTRA" data_type: TYPE_FP32 dims: 4 optional: true }\n'),
    Case("base_labels", BATCH.replace("OUT", "SCORES")),
)

GOOD = (
    Case("minimal", PY + IO),
    Case("named", 'name: "named"\n' + PY + IO),
    Case("no_backend", IO),
    Case("batched", BATCH),
    Case("batch_one", PY + "max_batch_size: 1\n" + IO),
    Case("dynamic", BATCH + "dynamic_batching { }\n"),
    Case("dynamic_no_batch", PY + IO + "dynamic_batching { }\n"),
    Case(
        "dynamic_preferred",
        BATCH + "dynamic_batching { preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100 }\n",
    ),
    Case(
        "dynamic_full",
        BATCH + "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1"
        " default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 10 allow_timeout_override: true"
        " max_queue_size: 3 } priority_queue_policy { key: 1 value { max_queue_size: 7 } } }\n",
    ),
    Case(
        "priorities",
        BATCH + "dynamic_batching { priority_levels: 3 default_priority_level: 2"
        " priority_queue_policy { key: 3 value { timeout_action: DELAY default_timeout_microseconds: 5 } } }\n",
    ),
    Case("version_all", BATCH + "version_policy { all { } }\n"),
    Case("version_latest_zero", BATCH + "version_policy { latest { num_versions: 0 } }\n"),
    Case("version_latest_empty", BATCH + "version_policy { latest { } }\n"),
    Case("version_empty", BATCH + "version_policy { }\n"),
    Case("version_latest_two", BATCH + "version_policy { latest { num_versions: 2 } }\n"),
    Case("version_specific", BATCH + "version_policy { specific { versions: [ 1 ] } }\n"),
    Case("group_cpu", BATCH + "instance_group { kind: KIND_CPU }\n"),
    Case("group_auto", BATCH + "instance_group { }\n"),
    Case("group_counted", BATCH + "instance_group { count: 2 }\n"),
    Case("group_two", BATCH + 'instance_group { name: "first" count: 1 } instance_group { kind: KIND_CPU count: 1 }\n'),
    Case("group_model", BATCH + "instance_group { kind: KIND_MODEL }\n"),
    Case(
        "group_passive", BATCH + "instance_group { kind: KIND_CPU passive: true } instance_group { kind: KIND_CPU }\n"
    ),
    Case(
        "group_limits",
        BATCH
        + 'instance_group { kind: KIND_CPU rate_limiter { resources { name: "R" global: true count: 2 } priority: 3 } }\n',
    ),
    Case("group_policy", BATCH + 'instance_group { kind: KIND_CPU host_policy: "somewhere" }\n'),
    Case(
        "group_secondary",
        BATCH + "instance_group { kind: KIND_CPU secondary_devices { kind: KIND_NVDLA device_id: 1 } }\n",
    ),
    Case(
        "reshape_to_scalar",
        PY + "max_batch_size: 8\n" + 'input { name: "IN" data_type: TYPE_FP32 dims: 1 reshape { } }\n' + OUT,
    ),
    Case(
        "reshape_same",
        PY + IN + 'output { name: "OUT" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } }\n',
    ),
    Case(
        "reshape_free",
        PY + IN + 'output { name: "OUT" data_type: TYPE_FP32 dims: [ -1, 2, 2 ] reshape { shape: [ -1, 4 ] } }\n',
    ),
    Case(
        "reshape_free_last",
        PY + IN + 'output { name: "OUT" data_type: TYPE_FP32 dims: [ 2, -1, 6 ] reshape { shape: [ 2, -1, 2, 3 ] } }\n',
    ),
    Case(
        "every_type",
        PY
        + "".join(
            f'input {{ name: "I{t}" data_type: TYPE_{t} dims: -1 }}\noutput {{ name: "O{t}" data_type: TYPE_{t} dims: -1 }}\n'
            for t in [
                "BOOL",
                "UINT8",
                "UINT16",
                "UINT32",
                "UINT64",
                "INT8",
                "INT16",
                "INT32",
                "INT64",
                "FP16",
                "FP32",
                "FP64",
                "STRING",
                "BF16",
            ]
        ),
    ),
    Case(
        "optional_ragged",
        BATCH + 'input { name: "MORE" data_type: TYPE_FP32 dims: -1 optional: true allow_ragged_batch: true }\n',
    ),
    Case("format", PY + 'input { name: "IN" data_type: TYPE_FP32 format: FORMAT_NHWC dims: [ 2, 2, 3 ] }\n' + OUT),
    Case(
        "labels",
        BATCH.replace("dims: 4 }\n", 'dims: 4 label_filename: "labels.txt" }\n').replace(
            'label_filename: "labels.txt" }\n', "}\n", 1
        ),
        files=(("labels.txt", "a\nb\n"),),
    ),
    Case(
        "labels_missing",
        BATCH.replace("dims: 4 }\n", 'dims: 4 label_filename: "none.txt" }\n').replace(
            'label_filename: "none.txt" }\n', "}\n", 1
        ),
    ),
    Case(
        "parameters",
        BATCH
        + 'parameters { key: "b" value { string_value: "2" } } parameters { key: "a" value { string_value: "1" } }\n',
    ),
    Case("metric_tags", BATCH + 'metric_tags { key: "team" value: "blue" }\n'),
    Case("decoupled", BATCH + "model_transaction_policy { decoupled: true }\n"),
    Case("coupled", BATCH + "model_transaction_policy { decoupled: false }\n"),
    Case("cache", BATCH + "response_cache { enable: true }\n"),
    Case(
        "pinned_off",
        BATCH + "optimization { input_pinned_memory { enable: false } output_pinned_memory { enable: false } }\n",
    ),
    Case("pinned_empty", BATCH + "optimization { input_pinned_memory { } }\n"),
    Case(
        "optimization",
        BATCH
        + "optimization { graph { level: 1 } priority: PRIORITY_MAX gather_kernel_buffer_threshold: 4 eager_batching: true cuda { graphs: true } }\n",
    ),
    Case(
        "accelerators",
        BATCH
        + 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" parameters { key: "x" value: "y" } } } }\n',
    ),
    Case(
        "warmup",
        BATCH
        + 'model_warmup { name: "w" batch_size: 0 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 4 zero_data: true } } }\n',
    ),
    Case("filename", BATCH + 'default_model_filename: "other.py"\n', files=(("1/other.py", MODEL),)),
    Case("cc_filenames", BATCH + 'cc_model_filenames { key: "7.5" value: "seven.py" }\n'),
    Case("platform_python", BATCH + 'platform: "anything"\n'),
    Case("runtime_model", BATCH + 'runtime: "libtriton_python.so"\n'),
    Case("agents_none", BATCH + "model_repository_agents { }\n"),
    Case("operations", BATCH + 'model_operations { op_library_filename: "custom.so" }\n'),
    Case(
        "metrics",
        BATCH
        + 'model_metrics { metric_control { metric_identifier { family: "nv_inference_first_response_histogram_ms" } histogram_options { buckets: [ 1, 2.5 ] } } }\n',
    ),
    Case("comments", "# nothing\n" + BATCH),
    Case("dims_separate", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: 4 dims: 2 }\n' + OUT),
    Case("no_config", None),
    Case("empty_config", ""),
    Case("no_io", PY),
    Case("no_input", PY + OUT),
    Case("no_output", PY + IN),
    Case("version_missing", BATCH + "version_policy { specific { versions: [ 5 ] } }\n"),
)

SEQUENCES = (
    Case("sequence", BATCH + "sequence_batching { }\n"),
    Case("sequence_direct", BATCH + "sequence_batching { direct { } }\n"),
    Case(
        "sequence_direct_full",
        BATCH
        + "sequence_batching { direct { max_queue_delay_microseconds: 5 minimum_slot_utilization: 0.5 } max_sequence_idle_microseconds: 7 }\n",
    ),
    Case("sequence_oldest", BATCH + "sequence_batching { oldest { max_candidate_sequences: 4 } }\n"),
    Case(
        "sequence_oldest_preferred",
        BATCH
        + "sequence_batching { oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] preserve_ordering: true } }\n",
    ),
    Case(
        "sequence_oldest_bad",
        BATCH + "sequence_batching { oldest { max_candidate_sequences: 4 preferred_batch_size: [ 20 ] } }\n",
    ),
    Case("sequence_oldest_zero", BATCH + "sequence_batching { oldest { preferred_batch_size: [ 0 ] } }\n"),
    Case("sequence_utilization", BATCH + "sequence_batching { direct { minimum_slot_utilization: 1.5 } }\n"),
    Case(
        "sequence_controls",
        BATCH
        + 'sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }'
        ' control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }'
        ' control_input { name: "END" control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } }'
        ' control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } }\n',
    ),
    Case(
        "sequence_state",
        BATCH
        + 'sequence_batching { state { input_name: "SI" output_name: "SO" data_type: TYPE_INT32 dims: -1 initial_state { name: "z" data_type: TYPE_INT32 dims: 1 zero_data: true } } }\n',
    ),
    Case("sequence_iterative", BATCH + "sequence_batching { iterative_sequence: true }\n"),
    Case(
        "sequence_twice",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } control_input { name: "B" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }\n',
    ),
    Case(
        "sequence_kinds",
        BATCH
        + 'sequence_batching { control_input { name: "A" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }, { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] } }\n',
    ),
    Case(
        "sequence_same_name",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } } }\n',
    ),
    Case(
        "sequence_input_name",
        BATCH
        + 'sequence_batching { control_input { name: "IN" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }\n',
    ),
    Case(
        "sequence_unnamed",
        BATCH
        + "sequence_batching { control_input { control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }\n",
    ),
    Case(
        "sequence_no_pair",
        BATCH + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY } } }\n',
    ),
    Case(
        "sequence_two_pairs",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] int32_false_true: [ 0, 1 ] } } }\n',
    ),
    Case(
        "sequence_pair_of_one",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0 ] } } }\n',
    ),
    Case(
        "sequence_pair_of_one_int",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0 ] } } }\n',
    ),
    Case(
        "sequence_pair_of_one_bool",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ true ] } } }\n',
    ),
    Case(
        "sequence_typed_flag",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY data_type: TYPE_INT32 int32_false_true: [ 0, 1 ] } } }\n',
    ),
    Case(
        "sequence_corrid_pair",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_CORRID int32_false_true: [ 0, 1 ] data_type: TYPE_UINT64 } } }\n',
    ),
    Case(
        "sequence_corrid_type",
        BATCH
        + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } }\n',
    ),
    Case(
        "sequence_corrid_untyped",
        BATCH + 'sequence_batching { control_input { name: "A" control { kind: CONTROL_SEQUENCE_CORRID } } }\n',
    ),
    Case("sequence_cache", BATCH + "sequence_batching { }\nresponse_cache { enable: true }\n"),
    Case("sequence_no_batch", PY + IO + "sequence_batching { oldest { max_candidate_sequences: 4 } }\n"),
)

BAD = (
    Case("negative_batch", PY + "max_batch_size: -1\n" + IO),
    Case("no_data_type", PY + 'input { name: "IN" dims: 4 }\n' + OUT),
    Case("no_data_type_out", PY + IN + 'output { name: "OUT" dims: 4 }\n'),
    Case("no_dims", PY + 'input { name: "IN" data_type: TYPE_FP32 }\n' + OUT),
    Case("no_name", PY + "input { data_type: TYPE_FP32 dims: 4 }\n" + OUT),
    Case("no_name_out", PY + IN + "output { data_type: TYPE_FP32 dims: 4 }\n"),
    Case("zero_dim", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: 0 }\n' + OUT),
    Case("negative_dim", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: -2 }\n' + OUT),
    Case("zero_dim_out", PY + IN + 'output { name: "OUT" data_type: TYPE_FP32 dims: [ 4, 0 ] }\n'),
    Case("reshape_size", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 5 ] } }\n' + OUT),
    Case(
        "reshape_variable", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: 4 reshape { shape: [ -1 ] } }\n' + OUT
    ),
    Case("reshape_fixed", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: -1 reshape { shape: [ 4 ] } }\n' + OUT),
    Case(
        "reshape_count",
        PY + 'input { name: "IN" data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: [ -1 ] } }\n' + OUT,
    ),
    Case(
        "reshape_parts",
        PY + 'input { name: "IN" data_type: TYPE_FP32 dims: [ 2, -1, 6 ] reshape { shape: [ 3, -1, 4 ] } }\n' + OUT,
    ),
    Case("reshape_zero", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 0 ] } }\n' + OUT),
    Case("reshape_empty", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: 1 reshape { } }\n' + OUT),
    Case("reshape_empty_out", PY + IN + 'output { name: "OUT" data_type: TYPE_FP32 dims: 1 reshape { } }\n'),
    Case("format_dims", PY + 'input { name: "IN" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 4 ] }\n' + OUT),
    Case("twice_in", PY + IN + IN + OUT),
    Case("twice_out", PY + IO + OUT),
    Case("shape_tensor", PY + 'input { name: "IN" data_type: TYPE_INT32 dims: 4 is_shape_tensor: true }\n' + OUT),
    Case("shape_tensor_out", PY + IN + 'output { name: "OUT" data_type: TYPE_FP32 dims: 4 is_shape_tensor: true }\n'),
    Case("non_linear", PY + 'input { name: "IN" data_type: TYPE_FP32 dims: 4 is_non_linear_format_io: true }\n' + OUT),
    Case(
        "non_linear_out",
        PY + IN + 'output { name: "OUT" data_type: TYPE_FP32 dims: 4 is_non_linear_format_io: true }\n',
    ),
    Case("preferred_zero", BATCH + "dynamic_batching { preferred_batch_size: 0 }\n"),
    Case("preferred_large", BATCH + "dynamic_batching { preferred_batch_size: 9 }\n"),
    Case("preferred_no_batch", PY + IO + "dynamic_batching { preferred_batch_size: 1 }\n"),
    Case("default_priority", BATCH + "dynamic_batching { priority_levels: 3 }\n"),
    Case("default_priority_high", BATCH + "dynamic_batching { priority_levels: 3 default_priority_level: 4 }\n"),
    Case("default_priority_alone", BATCH + "dynamic_batching { default_priority_level: 4 }\n"),
    Case(
        "priority_policy",
        BATCH
        + "dynamic_batching { priority_levels: 3 default_priority_level: 1 priority_queue_policy { key: 5 value { } } }\n",
    ),
    Case(
        "priority_policy_zero",
        BATCH
        + "dynamic_batching { priority_levels: 3 default_priority_level: 1 priority_queue_policy { key: 0 value { } } }\n",
    ),
    Case(
        "ordering_levels",
        BATCH + "dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1 }\n",
    ),
    Case(
        "ordering_delay",
        BATCH
        + "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 3 } }\n",
    ),
    Case(
        "ordering_delay_zero",
        BATCH + "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY } }\n",
    ),
    Case(
        "ordering_delay_level",
        BATCH
        + "dynamic_batching { preserve_ordering: true priority_levels: 1 default_priority_level: 1 priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 3 } } }\n",
    ),
    Case("cpu_with_gpus", BATCH + "instance_group { kind: KIND_CPU gpus: [ 0 ] }\n"),
    Case("model_with_gpus", BATCH + "instance_group { kind: KIND_MODEL gpus: [ 0 ] }\n"),
    Case("gpu_42", BATCH + "instance_group { kind: KIND_GPU gpus: [ 42 ] }\n"),
    Case("gpu_kind", BATCH + "instance_group { kind: KIND_GPU }\n"),
    Case("auto_gpu_42", BATCH + "instance_group { gpus: [ 42 ] }\n"),
    Case("group_negative", BATCH + "instance_group { kind: KIND_CPU count: -1 }\n"),
    Case("profile", BATCH + 'instance_group { kind: KIND_CPU profile: "0" }\n'),
    Case("profile_gpu", BATCH + 'instance_group { kind: KIND_GPU gpus: 0 profile: "0" }\n'),
    Case(
        "limit_global", BATCH + 'instance_group { kind: KIND_CPU rate_limiter { resources { name: "" count: 2 } } }\n'
    ),
    Case(
        "batch_input",
        BATCH
        + 'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "COUNT" data_type: TYPE_FP32 source_input: "IN" }\n',
    ),
    Case(
        "batch_input_sources",
        BATCH + 'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "COUNT" data_type: TYPE_FP32 }\n',
    ),
    Case(
        "batch_input_type",
        BATCH
        + 'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "COUNT" data_type: TYPE_FP64 source_input: "IN" }\n',
    ),
    Case(
        "batch_input_unknown",
        BATCH
        + 'batch_input { kind: BATCH_ELEMENT_COUNT target_name: "COUNT" data_type: TYPE_FP32 source_input: "U" }\n',
    ),
    Case(
        "batch_output",
        BATCH + 'batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "OUT" source_input: "IN" }\n',
    ),
    Case(
        "batch_output_unknown",
        BATCH + 'batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "O" source_input: "IN" }\n',
    ),
    Case(
        "batch_output_twice",
        BATCH
        + 'batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "OUT" target_name: "OUT" source_input: "IN" }\n',
    ),
    Case("cache_decoupled", BATCH + "model_transaction_policy { decoupled: true }\nresponse_cache { enable: true }\n"),
    Case("platform_pair", IO + 'backend: "onnxruntime"\nplatform: "onnxruntim"\n'),
    Case("platform_unknown", IO + 'platform: "something"\n'),
    Case("backend_unknown", IO + 'backend: "unknown"\n'),
    Case("runtime_missing", BATCH + 'runtime: "other.so"\n'),
    Case("runtime_escapes", BATCH + 'runtime: "../x.so"\n'),
    Case("backend_escapes", IO + 'backend: "../x"\n'),
    Case("ensemble_platform_backend", ENSEMBLE + PY + _ensemble(_step())),
    Case("ensemble_on_python", BATCH + _ensemble(_step())),
    Case("ensemble_empty", ENSEMBLE),
    Case("wrong_name", 'name: "right_name"\n' + PY + IO),
    Case("bad_syntax", PY + "input {\n"),
    Case("bad_field", BATCH + "max_batch: 3\n"),
    Case("bad_enum", BATCH + "instance_group { kind: KIND_TPU }\n"),
    Case("bad_value", PY + 'max_batch_size: "8"\n' + IO),
    Case("bad_number", PY + "max_batch_size: 99999999999\n" + IO),
    Case("bad_oneof", BATCH + "dynamic_batching { }\nsequence_batching { }\n"),
    Case("bad_twice", BATCH + "max_batch_size: 4\n"),
    Case("no_file", BATCH + 'default_model_filename: "none.py"\n'),
    Case("file_escapes", BATCH + 'default_model_filename: "../model.py"\n'),
    Case(
        "labels_escape",
        BATCH.replace("dims: 4 }\n", 'dims: 4 label_filename: "../labels.txt" }\n').replace(
            'label_filename: "../labels.txt" }\n', "}\n", 1
        ),
    ),
    Case("metrics_empty", BATCH + "model_metrics { metric_control { } }\n"),
    Case("metrics_family", BATCH + "model_metrics { metric_control { metric_identifier { } } }\n"),
    Case(
        "metrics_buckets",
        BATCH + 'model_metrics { metric_control { metric_identifier { family: "x" } histogram_options { } } }\n',
    ),
    Case(
        "warmup_input",
        BATCH
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "U" value { data_type: TYPE_FP32 dims: 4 zero_data: true } } }\n',
    ),
    Case(
        "warmup_no_kind",
        BATCH
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 4 } } }\n',
    ),
    Case(
        "warmup_type",
        BATCH
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_INT32 dims: 4 zero_data: true } } }\n',
    ),
    Case(
        "warmup_dims",
        BATCH
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: -1 zero_data: true } } }\n',
    ),
    Case(
        "warmup_wrong_dims",
        BATCH
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } }\n',
    ),
    Case(
        "warmup_large",
        BATCH
        + 'model_warmup { name: "w" batch_size: 9 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 4 zero_data: true } } }\n',
    ),
    Case(
        "warmup_file",
        BATCH
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 4 input_data_file: "none" } } }\n',
    ),
    Case(
        "warmup_short_file",
        BATCH
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 4 input_data_file: "short" } } }\n',
        files=(("warmup/short", "abc"),),
    ),
    Case(
        "warmup_text_file",
        PY
        + IO.replace("FP32", "STRING").replace("dims: 4", "dims: 1")
        + 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_STRING dims: 1 input_data_file: "text" } } }\n',
        files=(("warmup/text", "abc"),),
    ),
    Case(
        "warmup_missing_input",
        BATCH
        + 'input { name: "MORE" data_type: TYPE_FP32 dims: 4 }\nmodel_warmup { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 4 zero_data: true } } }\n',
    ),
)

ENSEMBLES = (
    Case("ensemble_one", ENSEMBLE + _ensemble(_step())),
    Case("ensemble_versioned", ENSEMBLE + _ensemble(_step(version="1"))),
    Case("ensemble_two", ENSEMBLE + _ensemble(_step(outputs='"OUT" "MID"'), _step(inputs='"IN" "MID"'))),
    Case("ensemble_order", ENSEMBLE + _ensemble(_step(inputs='"IN" "MID"'), _step(outputs='"OUT" "MID"'))),
    Case("ensemble_no_batch", 'platform: "ensemble"\n' + IO + _ensemble(_step("base_flat"))),
    Case("ensemble_flat_in_batch", ENSEMBLE + _ensemble(_step("base_flat"))),
    Case(
        "ensemble_batch_in_flat",
        'platform: "ensemble"\n' + IO.replace("dims: 4", "dims: [ 1, 4 ]") + _ensemble(_step()),
    ),
    Case("ensemble_free", ENSEMBLE + _ensemble(_step("base_free"))),
    Case("ensemble_decoupled", ENSEMBLE + _ensemble(_step("base_decoupled"))),
    Case(
        "ensemble_policy",
        ENSEMBLE + "model_transaction_policy { decoupled: false }\n" + _ensemble(_step("base_decoupled")),
    ),
    Case("ensemble_decoupled_only", ENSEMBLE + "model_transaction_policy { decoupled: true }\n" + _ensemble(_step())),
    Case("ensemble_optional", ENSEMBLE + _ensemble(_step("base_optional"))),
    Case("ensemble_version_all", ENSEMBLE + "version_policy { all { } }\n" + _ensemble(_step())),
    Case("ensemble_cache", ENSEMBLE + "response_cache { enable: true }\n" + _ensemble(_step())),
    Case(
        "ensemble_parameters", ENSEMBLE + 'parameters { key: "a" value { string_value: "1" } }\n' + _ensemble(_step())
    ),
    Case("ensemble_no_step", ENSEMBLE + "ensemble_scheduling { }\n"),
    Case("ensemble_no_model", ENSEMBLE + _ensemble(_step(""))),
    Case("ensemble_no_inputs", ENSEMBLE + _ensemble(_step(inputs=""))),
    Case("ensemble_no_outputs", ENSEMBLE + _ensemble(_step(outputs=""))),
    Case("ensemble_second_step", ENSEMBLE + _ensemble(_step(), _step(""))),
    Case("ensemble_twice_written", ENSEMBLE + _ensemble(_step(), _step())),
    Case("ensemble_unused_tensor", ENSEMBLE + _ensemble(_step(), _step("base", '"IN" "IN"', '"OUT" "WASTE"'))),
    Case("ensemble_unused_input", ENSEMBLE + IN.replace('"IN"', '"IN9"') + _ensemble(_step())),
    Case("ensemble_unused_output", ENSEMBLE + OUT.replace('"OUT"', '"OUT9"') + _ensemble(_step())),
    Case(
        "ensemble_not_written",
        ENSEMBLE + _ensemble(_step(inputs='"IN" "LOST"'), _step("base", '"IN" "IN"', '"OUT" "X"')),
    ),
    Case("ensemble_disconnected", ENSEMBLE + _ensemble(_step("base_two", '"IN" "IN" "IN2" "LOST"', '"OUT" "OUT"'))),
    Case(
        "ensemble_circle",
        ENSEMBLE
        + _ensemble(
            _step("base_two", '"IN" "IN" "IN2" "MID"', '"OUT" "OUT"'), _step("base", '"IN" "OUT"', '"OUT" "MID"')
        ),
    ),
    Case("ensemble_types", ENSEMBLE + _ensemble(_step("base_int"))),
    Case("ensemble_types_between", ENSEMBLE + _ensemble(_step(outputs='"OUT" "MID"'), _step("base_int", '"IN" "MID"'))),
    Case("ensemble_shapes", ENSEMBLE + _ensemble(_step("base_wide"))),
    Case(
        "ensemble_shapes_between", ENSEMBLE + _ensemble(_step(outputs='"OUT" "MID"'), _step("base_wide", '"IN" "MID"'))
    ),
    Case("ensemble_unknown_input", ENSEMBLE + _ensemble(_step(inputs='"IN" "IN" "U" "IN"'))),
    Case("ensemble_unknown_output", ENSEMBLE + _ensemble(_step(outputs='"U" "OUT"'))),
    Case("ensemble_unmapped", ENSEMBLE + _ensemble(_step("base_two", '"IN" "IN"', '"OUT" "OUT"'))),
    Case("ensemble_larger", ENSEMBLE + _ensemble(_step("base_small"))),
    Case("ensemble_unknown_model", ENSEMBLE + _ensemble(_step("nobody"))),
    Case("ensemble_unknown_version", ENSEMBLE + _ensemble(_step(version="2"))),
    Case("ensemble_itself", ENSEMBLE + _ensemble(_step("ensemble_itself"))),
    Case("ensemble_group", ENSEMBLE + "instance_group { }\n" + _ensemble(_step())),
    Case("ensemble_optimization", ENSEMBLE + "optimization { }\n" + _ensemble(_step())),
    Case("ensemble_warmup", ENSEMBLE + 'model_warmup { name: "w" batch_size: 1 }\n' + _ensemble(_step())),
    Case("ensemble_no_platform", "max_batch_size: 8\n" + IO + _ensemble(_step())),
    Case("ensemble_no_io", 'platform: "ensemble"\n' + _ensemble(_step())),
    Case("ensemble_inflight", ENSEMBLE + _ensemble(_step()).replace("{ step", "{ max_inflight_requests: 3 step")),
)

COMPLETIONS = (
    Case("complete_nothing", PY + IO, _completing()),
    Case("complete_io", PY, _completing(*_ADD_IO)),
    Case("complete_no_config", None, _completing(*_ADD_IO)),
    Case("complete_input", PY + OUT, _completing(_ADD_IO[0])),
    Case("complete_same", PY + IO, _completing(*_ADD_IO)),
    Case("complete_batch", PY, _completing(*_ADD_IO, "config.set_max_batch_size(4)")),
    Case("complete_batch_larger", BATCH, _completing("config.set_max_batch_size(16)")),
    Case("complete_batch_smaller", BATCH, _completing("config.set_max_batch_size(4)")),
    Case("complete_batch_zero", PY, _completing(*_ADD_IO, "config.set_max_batch_size(0)")),
    Case(
        "complete_dynamic", PY, _completing(*_ADD_IO, "config.set_max_batch_size(4)", "config.set_dynamic_batching()")
    ),
    Case(
        "complete_dynamic_given",
        BATCH + "dynamic_batching { preferred_batch_size: 4 }\n",
        _completing("config.set_dynamic_batching()"),
    ),
    Case("complete_dynamic_sequence", BATCH + "sequence_batching { }\n", _completing("config.set_dynamic_batching()")),
    Case("complete_dynamic_no_batch", PY + IO, _completing("config.set_dynamic_batching()")),
    Case("complete_type", PY + IO.replace("FP32", "INT32"), _completing(*_ADD_IO)),
    Case("complete_dims", PY + IO.replace("dims: 4", "dims: 16"), _completing(*_ADD_IO)),
    Case("complete_type_out", PY + IN + OUT.replace("FP32", "INT32"), _completing(*_ADD_IO)),
    Case("complete_missing_type", PY, _completing("config.add_input({'name': 'IN', 'dims': [4]})")),
    Case("complete_missing_dims", PY, _completing("config.add_input({'name': 'IN', 'data_type': 'TYPE_FP32'})")),
    Case("complete_missing_name", PY, _completing("config.add_input({'dims': [4], 'data_type': 'TYPE_FP32'})")),
    Case(
        "complete_other_key",
        PY,
        _completing("config.add_input({'name': 'IN', 'data_type': 'TYPE_FP32', 'dims': [4], 'x': 1})"),
    ),
    Case(
        "complete_other_key_out",
        PY,
        _completing("config.add_output({'name': 'IN', 'data_type': 'TYPE_FP32', 'dims': [4], 'optional': True})"),
    ),
    Case("complete_optional", PY, _completing(_ADD_IO[0].replace("}", ", 'optional': True}"), _ADD_IO[1])),
    Case("complete_optional_given", PY + IO, _completing(_ADD_IO[0].replace("}", ", 'optional': True}"))),
    Case("complete_decoupled", PY + IO, _completing("config.set_model_transaction_policy(dict(decoupled=True))")),
    Case(
        "complete_decoupled_given",
        PY + IO + "model_transaction_policy { decoupled: true }\n",
        _completing("config.set_model_transaction_policy(dict(decoupled=False))"),
    ),
    Case(
        "complete_decoupled_set_false",
        PY + IO + "model_transaction_policy { decoupled: false }\n",
        _completing("config.set_model_transaction_policy(dict(decoupled=True))"),
    ),
    Case("complete_policy_key", PY + IO, _completing("config.set_model_transaction_policy(dict(x=True))")),
    Case("complete_none", PY + IO, _completing("return None")),
    Case("complete_other", PY + IO, _completing("return 3")),
    Case("complete_raises", PY + IO, _completing("raise ValueError('no config today')")),
    Case("complete_bad_type", PY, _completing(_ADD_IO[0].replace("TYPE_FP32", "TYPE_X"), _ADD_IO[1])),
    Case("complete_lower_type", PY, _completing(_ADD_IO[0].replace("TYPE_FP32", "FP32"), _ADD_IO[1])),
    Case("complete_bad_dims", PY, _completing(_ADD_IO[0].replace("[4]", "[0]"), _ADD_IO[1])),
    Case("complete_text_dims", PY, _completing(_ADD_IO[0].replace("[4]", "'4'"), _ADD_IO[1])),
    Case("complete_empty_dims", PY, _completing(_ADD_IO[0].replace("[4]", "[]"), _ADD_IO[1])),
    Case(
        "complete_dict",
        PY + IO,
        _completing(
            "config.as_dict()['max_batch_size'] = 3", "config.as_dict()['parameters'] = {'a': {'string_value': 'b'}}"
        ),
    ),
    Case("complete_instance_group", PY + IO, _completing("config.as_dict()['instance_group'] = [{'count': 3}]")),
    Case(
        "complete_extra_input",
        PY + IO,
        _completing("config.add_input({'name': 'IN2', 'data_type': 'TYPE_STRING', 'dims': [-1]})"),
    ),
    Case("complete_twice", PY, _completing(*_ADD_IO, _ADD_IO[0])),
    Case("complete_partial", PY + 'input { name: "IN" }\n', _completing(*_ADD_IO)),
    Case(
        "complete_seen",
        PY + IO + 'parameters { key: "k" value { string_value: "v" } }\n',
        _completing("import json", "raise ValueError(json.dumps(config.as_dict(), sort_keys=True))"),
    ),
    Case(
        "complete_seen_none",
        None,
        _completing("import json", "raise ValueError(json.dumps(config.as_dict(), sort_keys=True))"),
    ),
    Case(
        "complete_seen_batch",
        BATCH + "dynamic_batching { }\n",
        _completing("import json", "raise ValueError(json.dumps(config.as_dict(), sort_keys=True))"),
    ),
)

_JSON_IO = '"input":[{"name":"IN","data_type":"TYPE_FP32","dims":[4]}],"output":[{"name":"OUT","data_type":"TYPE_FP32","dims":[4]}]'
OVERRIDES = (
    Case("json_plain", PY + IO, override='{"backend":"python","max_batch_size":3,' + _JSON_IO + "}"),
    Case("json_replaces", BATCH + "dynamic_batching { }\n", override='{"backend":"python",' + _JSON_IO + "}"),
    Case("json_no_backend", BATCH, override="{" + _JSON_IO + "}"),
    Case("json_empty", BATCH, override="{}"),
    Case("json_no_text", BATCH, override=""),
    Case("json_name", BATCH, override='{"name":"other","backend":"python",' + _JSON_IO + "}"),
    Case("json_bare_names", BATCH, override="{backend:'python',max_batch_size:2," + _JSON_IO + "}"),
    Case("json_single_quotes", BATCH, override=("{'backend':'python'," + _JSON_IO + "}").replace('"', "'")),
    Case("json_trailing_comma", BATCH, override='{"backend":"python",' + _JSON_IO + ",}"),
    Case("json_trailing_list", BATCH, override='{"backend":"python",' + _JSON_IO.replace("[4]", "[4,]") + "}"),
    Case(
        "json_text_numbers",
        BATCH,
        override='{"backend":"python","max_batch_size":"3",' + _JSON_IO.replace("[4]", '["4"]') + "}",
    ),
    Case(
        "json_enum_case", BATCH, override='{"backend":"python",' + _JSON_IO + ',"instance_group":[{"kind":"kind_cpu"}]}'
    ),
    Case("json_enum_number", BATCH, override='{"backend":"python",' + _JSON_IO + ',"instance_group":[{"kind":2}]}'),
    Case("json_camel", BATCH, override='{"backend":"python","maxBatchSize":5,' + _JSON_IO + "}"),
    Case("json_unknown", BATCH, override='{"backend":"python","max_batch":5,' + _JSON_IO + "}"),
    Case("json_unknown_deep", BATCH, override='{"backend":"python",' + _JSON_IO + ',"dynamic_batching":{"size":3}}'),
    Case("json_null", BATCH, override='{"backend":"python","dynamic_batching":null,' + _JSON_IO + "}"),
    Case("json_float", BATCH, override='{"backend":"python","max_batch_size":5.0,' + _JSON_IO + "}"),
    Case("json_fraction", BATCH, override='{"backend":"python","max_batch_size":5.5,' + _JSON_IO + "}"),
    Case("json_text_for_number", BATCH, override='{"backend":"python","max_batch_size":"many",' + _JSON_IO + "}"),
    Case("json_number_for_text", BATCH, override='{"backend":5,' + _JSON_IO + "}"),
    Case("json_large", BATCH, override='{"backend":"python","max_batch_size":99999999999,' + _JSON_IO + "}"),
    Case("json_bad_enum", BATCH, override='{"backend":"python",' + _JSON_IO.replace("TYPE_FP32", "TYPE_X") + "}"),
    Case("json_syntax", BATCH, override='{"backend":'),
    Case("json_array", BATCH, override="[]"),
    Case("json_word", BATCH, override="hello"),
    Case("json_pbtxt", BATCH, override=BATCH),
    Case(
        "json_oneof",
        BATCH,
        override='{"backend":"python","dynamic_batching":{},"sequence_batching":{},' + _JSON_IO + "}",
    ),
    Case("json_twice", BATCH, override='{"backend":"python","max_batch_size":1,"max_batch_size":2,' + _JSON_IO + "}"),
    Case("json_dims_scalar", BATCH, override='{"backend":"python",' + _JSON_IO.replace("[4]", "4") + "}"),
    Case("json_map", BATCH, override='{"backend":"python","parameters":{"a":{"string_value":"b"}},' + _JSON_IO + "}"),
    Case("json_map_bare", BATCH, override='{"backend":"python",parameters:{a:{string_value:"b"}},' + _JSON_IO + "}"),
    Case(
        "json_bool_text",
        BATCH,
        override='{"backend":"python","model_transaction_policy":{"decoupled":"true"},' + _JSON_IO + "}",
    ),
    Case("json_invalid", BATCH, override='{"backend":"python","max_batch_size":-1,' + _JSON_IO + "}"),
    Case(
        "json_versions",
        BATCH,
        override='{"backend":"python","version_policy":{"specific":{"versions":["1"]}},' + _JSON_IO + "}",
    ),
    Case("json_garbage_after", BATCH, override='{"backend":"python",' + _JSON_IO + "} x"),
    Case("json_spaces", BATCH, override=' \n{"backend" : "python",\t' + _JSON_IO + "}\n "),
    Case("json_escapes", BATCH, override='{"backend":"pyth\\u006fn",' + _JSON_IO + "}"),
)

CASES = (*BASES, *GOOD, *SEQUENCES, *BAD, *ENSEMBLES, *COMPLETIONS, *OVERRIDES)
