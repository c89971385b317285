# ruff: noqa: E501 - one configuration a line
"""Models that do not load: one mistake each. The load error and the row of the index are compared."""

from __future__ import annotations

from pathlib import Path

_SOURCES = Path(__file__).parent / "sources"
_IO = 'input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }'
_OUT = 'output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }'
_ONE = 'backend: "python" input { name: "IN" data_type: TYPE_INT32 '
_CONTROL = 'backend: "python" max_batch_size: 4 ' + _IO + " sequence_batching { direct { } %s }"
_START = 'control_input { name: "%s" control { kind: CONTROL_SEQUENCE_START %s } }'
_HOW = 'backend: "python" parameters { key: "how" value { string_value: "%s" } } '
_ENSEMBLE = 'platform: "ensemble" ' + _IO

# name -> config.pbtxt; the model itself is a good one
_CONFIGS = {
    "negative_batch": f'backend: "python" max_batch_size: -1 {_IO}',
    "no_datatype": f'backend: "python" input {{ name: "IN" dims: [ 1 ] }} {_OUT}',
    "no_dims": f'backend: "python" input {{ name: "IN" data_type: TYPE_INT32 }} {_OUT}',
    "no_input_name": f'backend: "python" input {{ data_type: TYPE_INT32 dims: [ 1 ] }} {_OUT}',
    "zero_dim": f"{_ONE} dims: [ 0 ] }} {_OUT}",
    "minus_two_dim": f"{_ONE} dims: [ -2 ] }} {_OUT}",
    "reshape_size": f"{_ONE} dims: [ 4 ] reshape {{ shape: [ 3 ] }} }} {_OUT}",
    "reshape_variable": f"{_ONE} dims: [ -1 ] reshape {{ shape: [ 2 ] }} }} {_OUT}",
    "reshape_zero": f"{_ONE} dims: [ 1 ] reshape {{ shape: [ 0 ] }} }} {_OUT}",
    "reshape_empty": f"{_ONE} dims: [ 1 ] reshape {{ shape: [ ] }} }} {_OUT}",
    "format_dims": f"{_ONE} dims: [ 1 ] format: FORMAT_NHWC }} {_OUT}",
    "same_name": 'name: "somebody_else" backend: "python" ' + _IO,
    "duplicate_input": 'backend: "python" ' + _IO + ' input { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }',
    "duplicate_output": 'backend: "python" ' + _IO + ' output { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }',
    "preferred_too_large": f'backend: "python" max_batch_size: 4 {_IO} dynamic_batching {{ preferred_batch_size: [ 5 ] }}',
    "preferred_zero": f'backend: "python" max_batch_size: 4 {_IO} dynamic_batching {{ preferred_batch_size: [ 0 ] }}',
    "default_priority": f'backend: "python" max_batch_size: 4 {_IO} dynamic_batching {{ priority_levels: 3 default_priority_level: 4 }}',
    "priority_policy": f'backend: "python" max_batch_size: 4 {_IO} dynamic_batching {{ priority_levels: 3 default_priority_level: 1 priority_queue_policy {{ key: 9 value {{ max_queue_size: 1 }} }} }}',
    "ordered_priorities": f'backend: "python" max_batch_size: 4 {_IO} dynamic_batching {{ priority_levels: 3 default_priority_level: 1 preserve_ordering: true }}',
    "ordered_delay": f'backend: "python" max_batch_size: 4 {_IO} dynamic_batching {{ preserve_ordering: true default_queue_policy {{ timeout_action: DELAY }} }}',
    "batching_without_batch": f'backend: "python" {_IO} dynamic_batching {{ }}',
    "cpu_with_gpus": f'backend: "python" {_IO} instance_group {{ kind: KIND_CPU gpus: [ 0 ] }}',
    "no_gpu": f'backend: "python" {_IO} instance_group {{ kind: KIND_GPU gpus: [ 42 ] }}',
    "negative_count": f'backend: "python" {_IO} instance_group {{ kind: KIND_CPU count: -1 }}',
    "two_starts": _CONTROL
    % (_START % ("S", "int32_false_true: [ 0, 1 ]") + _START % ("T", "int32_false_true: [ 0, 1 ]")),
    "control_no_values": _CONTROL % (_START % ("S", "")),
    "control_one_value": _CONTROL % (_START % ("S", "int32_false_true: [ 0 ]")),
    "control_two_kinds": _CONTROL % (_START % ("S", "int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ]")),
    "control_is_input": _CONTROL % (_START % ("IN", "int32_false_true: [ 0, 1 ]")),
    "control_no_name": _CONTROL % (_START % ("", "int32_false_true: [ 0, 1 ]")),
    "corrid_float": _CONTROL
    % 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } }',
    "oldest_preferred": f'backend: "python" max_batch_size: 4 {_IO} sequence_batching {{ oldest {{ max_candidate_sequences: 4 preferred_batch_size: [ 9 ] }} }}',
    "cached_sequences": f'backend: "python" max_batch_size: 4 {_IO} sequence_batching {{ direct {{ }} }} response_cache {{ enable: true }}',
    "cached_decoupled": f'backend: "python" {_IO} model_transaction_policy {{ decoupled: true }} response_cache {{ enable: true }}',
    "unknown_backend": f'backend: "unknown" {_IO}',
    "platform_pair": f'platform: "onnxruntime_onnx" backend: "python" {_IO}',
    "unknown_platform": f'platform: "unknown_thing" {_IO}',
    "unknown_field": f'backend: "python" {_IO} colour: "red"',
    "syntax": 'backend: "python" input {',
    "wrong_kind": f'backend: "python" max_batch_size: "four" {_IO}',
    "unknown_datatype": f'backend: "python" input {{ name: "IN" data_type: TYPE_FLOAT dims: [ 1 ] }} {_OUT}',
    "twice_scheduled": f'backend: "python" max_batch_size: 4 {_IO} dynamic_batching {{ }} sequence_batching {{ direct {{ }} }}',
    "absent_version": f'backend: "python" {_IO} version_policy {{ specific {{ versions: [ 5 ] }} }}',
    "batch_input_source": f'backend: "python" max_batch_size: 4 {_IO} batch_input {{ kind: BATCH_ELEMENT_COUNT target_name: "B" data_type: TYPE_FP32 }}',
    "batch_input_unknown": f'backend: "python" max_batch_size: 4 {_IO} batch_input {{ kind: BATCH_ELEMENT_COUNT target_name: "B" data_type: TYPE_FP32 source_input: "U" }}',
    "warmup_shape": f'backend: "python" {_IO} model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "IN" value {{ data_type: TYPE_FP32 dims: [ 1 ] zero_data: true }} }} }}',
    "warmup_absent_file": f'backend: "python" {_IO} model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "IN" value {{ data_type: TYPE_INT32 dims: [ 1 ] input_data_file: "nothing" }} }} }}',
    "escaping_filename": f'backend: "python" {_IO} default_model_filename: "../model.py"',
    "absent_filename": f'backend: "python" {_IO} default_model_filename: "other.py"',
    "scheduled_ensemble": f'backend: "python" {_IO} ensemble_scheduling {{ }}',
    "ensemble_no_steps": _ENSEMBLE + " ensemble_scheduling { }",
    "ensemble_no_scheduling": _ENSEMBLE,
    "ensemble_backend": _ENSEMBLE
    + ' backend: "python" ensemble_scheduling { step { model_name: "plain" model_version: -1 } }',
    "ensemble_no_model": _ENSEMBLE
    + ' ensemble_scheduling { step { model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }',
    "ensemble_no_maps": _ENSEMBLE + ' ensemble_scheduling { step { model_name: "v_latest" model_version: -1 } }',
    "ensemble_unwritten": _ENSEMBLE
    + ' ensemble_scheduling { step { model_name: "v_latest" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "X" } } }',
    "ensemble_instances": _ENSEMBLE
    + ' instance_group { kind: KIND_CPU } ensemble_scheduling { step { model_name: "v_latest" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }',
    # what auto_complete_config must not do
    **{
        f"complete_{how.replace(' ', '_')}": _HOW % how
        for how in (
            "nothing",
            "none returned",
            "raises",
            "no data_type",
            "no name",
            "no dims",
            "more",
            "output optional",
            "twice",
            "policy unknown",
        )
    },
    "complete_other_batch": (_HOW % "all") + "max_batch_size: 6",
    "complete_other_type": (_HOW % "all") + 'input { name: "IN" data_type: TYPE_INT32 dims: [ 4 ] }',
    "complete_other_dims": (_HOW % "all") + 'input { name: "IN" data_type: TYPE_FP32 dims: [ 16 ] }',
    "complete_other_rank": (_HOW % "all") + 'input { name: "IN" data_type: TYPE_FP32 dims: [ 4, 4 ] }',
    "complete_other_input": (_HOW % "all") + 'input { name: "ELSE" data_type: TYPE_FP32 dims: [ 4 ] }',
    "complete_other_scheduler": (_HOW % "dynamic") + "max_batch_size: 4 sequence_batching { direct { } }",
    "complete_not_decoupled": (_HOW % "decoupled") + "model_transaction_policy { decoupled: false }",
}
_BROKEN = {f"broken_{how}": (_HOW % how) + _IO for how in ("raises", "triton", "missing")}


def _files() -> dict[str, dict[str, str]]:
    sources = {name: (_SOURCES / f"{name}.py").read_text() for name in ("version", "complete", "broken")}
    found: dict[str, dict[str, str]] = {}
    for name, config in _CONFIGS.items():
        source = sources["complete" if name.startswith("complete_") else "version"]
        found[f"refused_{name}"] = {"config.pbtxt": config + "\n", "1/model.py": source}
    for name, config in _BROKEN.items():
        found[f"refused_{name}"] = {"config.pbtxt": config + "\n", "1/model.py": sources["broken"]}
    good = f'backend: "python" {_IO}\n'
    return found | {
        "refused_no_version": {"config.pbtxt": good},
        "refused_no_model": {"config.pbtxt": good, "1/.keep": ""},
        "refused_no_class": {"config.pbtxt": good, "1/model.py": "pass\n"},
        "refused_no_execute": {"config.pbtxt": good, "1/model.py": "class TritonPythonModel:\n    pass\n"},
        "refused_syntax_error": {"config.pbtxt": good, "1/model.py": "class TritonPythonModel\n"},
        "refused_import": {"config.pbtxt": good, "1/model.py": "import no_such_module_anywhere\n"},
        "refused_module_raises": {"config.pbtxt": good, "1/model.py": "raise RuntimeError('at import')\n"},
        "refused_nothing": {"readme.txt": "no model here\n"},
        "refused_second_version": {
            "config.pbtxt": good + "version_policy { all { } }\n",
            "1/model.py": sources["version"],
            "2/model.py": "raise RuntimeError('the second one')\n",
        },
    }


REFUSED = _files()
