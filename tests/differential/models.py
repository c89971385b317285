"""The repositories that both servers get: model name -> files, as text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.differential.ensemble_models import ENSEMBLES, PARTS, ensemble
from tests.differential.ensemble_models import step as _step
from tests.differential.refused_models import REFUSED
from tests.differential.sequence_models import SEQUENCES
from tests.differential.tensors import DATATYPES

_SOURCES = Path(__file__).parent / "sources"
Files = dict[str, str]


def source(name: str) -> str:
    """Return the text of one of the Python models."""
    return (_SOURCES / f"{name}.py").read_text()


def tensor(side: str, name: str, datatype: str, dims: str, more: str = "") -> str:
    """Return an input or output of a config.pbtxt; ``datatype`` by its name on the wire."""
    kind = "STRING" if datatype == "BYTES" else datatype
    return f'{side} {{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] {more} }}'


def python(name: str, config: Iterable[str] = (), versions: Iterable[int] = (1,), instances: int = 1) -> Files:
    """Return a model of the Python backend."""
    lines = ['backend: "python"', *config, f"instance_group {{ kind: KIND_CPU count: {instances} }}"]
    files = {"config.pbtxt": "\n".join(lines) + "\n"}
    return files | {f"{version}/model.py": source(name) for version in versions}


def io(side: str, *tensors: tuple[str, str, str]) -> list[str]:
    """Return several inputs or outputs."""
    return [tensor(side, *entry) for entry in tensors]


_BATCHED = "max_batch_size: 8"
_ADD_SUB = [
    *io("input", ("INPUT0", "FP32", "16"), ("INPUT1", "FP32", "16")),
    *io("output", ("OUTPUT0", "FP32", "16"), ("OUTPUT1", "FP32", "16")),
]
_ADD_SUB_INT = [
    *io("input", ("INPUT0", "INT32", "4"), ("INPUT1", "INT32", "4")),
    *io("output", ("OUTPUT0", "INT32", "4"), ("OUTPUT1", "INT32", "4")),
]


def _types(dims: str) -> list[str]:
    inputs = [tensor("input", f"IN_{kind}", kind, dims, "optional: true") for kind in DATATYPES]
    return inputs + [tensor("output", f"OUT_{kind}", kind, dims) for kind in DATATYPES]


def _identity(datatype: str, dims: str, *more: str) -> list[str]:
    return [tensor("input", "IN", datatype, dims), tensor("output", "OUT", datatype, dims), *more]


def _scores() -> list[str]:
    kinds = {"FLOATS": "FP32", "DOUBLES": "FP64", "HALVES": "FP16", "INTS": "INT32", "BYTES": "UINT8"}
    kinds |= {"BOOLS": "BOOL", "TEXTS": "BYTES"}
    label = 'label_filename: "labels.txt"'
    outputs = [tensor("output", n, k, "5", label if n in ("FLOATS", "INTS") else "") for n, k in kinds.items()]
    return [_BATCHED, tensor("input", "IN", "INT32", "1"), *outputs]


def _versioned(policy: str) -> list[str]:
    return [tensor("input", "IN", "INT32", "1"), tensor("output", "OUT", "INT32", "1"), policy]


_LOOK = [
    tensor("input", "IN", "INT32", "-1"),
    tensor("input", "MORE", "FP32", "1", "optional: true"),
    tensor("output", "OUT", "BYTES", "1"),
    tensor("output", "OTHER", "INT32", "1"),
]
_SLEEP = [_BATCHED, tensor("input", "SECONDS", "FP32", "1"), tensor("output", "OUT", "INT32", "1")]
_DECOUPLED = "model_transaction_policy { decoupled: true }"
_REPEAT = [
    tensor("input", "IN", "INT32", "1"),
    tensor("input", "HOW", "BYTES", "1", "optional: true"),
    tensor("output", "OUT", "INT32", "1"),
    tensor("output", "TEXT", "BYTES", "1"),
    _DECOUPLED,
]
_HOW = [tensor("input", "HOW", "BYTES", "1"), tensor("output", "OUT", "INT32", "1")]
_CALLS = [tensor("input", "HOW", "BYTES", "1"), tensor("output", "OUT", "BYTES", "1")]


def _complete(how: str, *more: str) -> list[str]:
    return [f'parameters {{ key: "how" value {{ string_value: "{how}" }} }}', *more]


def _controls(kind: str) -> list[str]:
    flags = [
        f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{name} int32_false_true: [ 0, 1 ] }} }}'
        for name in ("START", "END", "READY")
    ]
    corrid = 'control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }'
    return [
        "max_batch_size: 4",
        "sequence_batching { max_sequence_idle_microseconds: 60000000",
        kind,
        *flags,
        corrid,
        "}",
        tensor("input", "IN", "INT32", "1"),
        *io("output", ("OUT", "INT32", "1"), ("SEEN", "INT32", "4")),
    ]


_QUEUE = "dynamic_batching { %s default_queue_policy { %s } }"
_SHOWN_METRICS = ("counters", "gauges", "histograms", "shared")
_BESIDE = {"1/beside.py": "WORD = 'version'\n", "beside_model.py": "WORD = 'model'\n"}

EXPLICIT: dict[str, Files] = {
    "add_sub": python("add_sub", [_BATCHED, "dynamic_batching { }", *_ADD_SUB]),
    "plain": python("add_sub", _ADD_SUB_INT),
    "types": python("identity", _types("-1")),
    "types_batched": python("identity", [_BATCHED, *_types("3")]),
    "text": python("identity", _identity("BYTES", "1")),
    "texts": python("identity", [_BATCHED, *_identity("BYTES", "-1")]),
    "raw": python("identity", [_BATCHED, *_identity("FP32", "-1")]),
    "raw_matrix": python("identity", _identity("INT16", "2, -1")),
    "raw_one": python("identity", _identity("FP32", "-1")),
    **{
        f"overflowing_{id}": python("identity", _identity("FP32", "-1, -1"))
        for id in ("product", "bytes", "product-by-zero", "beyond-int64")
    },
    "overflowing_largest": python("identity", _identity("FP32", "-1")),
    "raw_two": python("identity", _identity("FP32", "-1, -1")),
    "halves": python("identity", _identity("FP16", "-1")),
    "reshaped": python(
        "identity",
        [
            _BATCHED,
            tensor("input", "IN", "INT32", "1", "reshape { shape: [ ] }"),
            tensor("output", "OUT", "INT32", "1", "reshape { shape: [ ] }"),
            tensor("input", "IN2", "INT32", "2, 2", "reshape { shape: [ 4 ] }"),
            tensor("output", "OUT2", "INT32", "2, 2", "reshape { shape: [ 4 ] }"),
        ],
    ),
    "ragged": python(
        "identity",
        [
            _BATCHED,
            "dynamic_batching { }",
            tensor("input", "IN", "INT32", "-1", "allow_ragged_batch: true"),
            tensor("output", "OUT", "INT32", "-1"),
        ],
    ),
    "optional": python(
        "identity",
        [
            _BATCHED,
            tensor("input", "IN0", "INT32", "2"),
            tensor("input", "IN1", "INT32", "2", "optional: true"),
            tensor("input", "IN2", "INT32", "2", "optional: true"),
            *io("output", ("OUT0", "INT32", "2"), ("OUT1", "INT32", "2"), ("OUT2", "INT32", "2")),
        ],
    ),
    "look": python("look", _LOOK),
    "arguments": python("arguments", [tensor("input", "IN", "INT32", "1"), tensor("output", "OUT", "BYTES", "1")]),
    "failing": python("failing", _HOW),
    "dying": python("failing", _HOW),
    "sender": python("sender", _HOW),
    "repeat": python("repeat", _REPEAT),
    "repeat_batched": python("repeat", ["max_batch_size: 4", *_REPEAT]),
    "parameters": python("parameters", [tensor("input", "IN", "BYTES", "1"), tensor("output", "OUT", "INT32", "1")]),
    "scores": {**python("scores", _scores()), "labels.txt": "apple\npear\nplum\ncherry\n"},
    "sleep": python("sleep", _SLEEP),
    "sleep_batching": python("sleep", [*_SLEEP, "dynamic_batching { }"]),
    "sleep_queue": python("sleep", [*_SLEEP, _QUEUE % ("preferred_batch_size: [ 1 ]", "max_queue_size: 1")]),
    "sleep_timeout": python(
        "sleep",
        [
            *_SLEEP,
            _QUEUE
            % (
                "preferred_batch_size: [ 1 ]",
                "default_timeout_microseconds: 100000 allow_timeout_override: true timeout_action: REJECT",
            ),
        ],
    ),
    "sleep_priority": python(
        "sleep",
        [*_SLEEP, "dynamic_batching { preferred_batch_size: [ 1 ] priority_levels: 3 default_priority_level: 2 }"],
    ),
    "counted": python("add_sub", [_BATCHED, "dynamic_batching { }", *_ADD_SUB]),
    "counted_failing": python("failing", _HOW),
    "counted_repeat": python("repeat", _REPEAT),
    "tagged": python("add_sub", [*_ADD_SUB_INT, 'metric_tags { key: "team" value: "blue" }']),
    "several": python("add_sub", [_BATCHED, *_ADD_SUB], instances=2),
    "v_latest": python("version", _versioned(""), (1, 2, 10)),
    "v_two": python("version", _versioned("version_policy { latest { num_versions: 2 } }"), (1, 2, 10)),
    "v_all": python("version", _versioned("version_policy { all { } }"), (1, 2, 10)),
    "v_some": python("version", _versioned("version_policy { specific { versions: [ 1, 2 ] } }"), (1, 2, 10)),
    "v_absent": python("version", _versioned("version_policy { specific { versions: [ 1, 7 ] } }"), (1, 2)),
    "v_odd": {
        **python("version", _versioned("version_policy { all { } }"), (3,)),
        "03/model.py": source("version"),
        "abc/model.py": source("version"),
        "0/model.py": source("version"),
    },
    "life": python("version", _versioned("version_policy { all { } }"), (1, 2)),
    "life_broken": python("version", _versioned(""), (1,)),
    "life_files": python("version", _versioned(""), (1,)),
    "life_grows": python("version", _versioned(""), (1,)),
    "life_never": python("version", _versioned(""), (1,)),
    "warm": python(
        "add_sub",
        [
            _BATCHED,
            *_ADD_SUB,
            'model_warmup { name: "zeros" batch_size: 2',
            'inputs { key: "INPUT0" value { data_type: TYPE_FP32 dims: [ 16 ] zero_data: true } }',
            'inputs { key: "INPUT1" value { data_type: TYPE_FP32 dims: [ 16 ] random_data: true } } }',
        ],
    ),
    # completed by the model
    **{
        f"complete_{how.replace(' ', '_')}": python("complete", _complete(how))
        for how in ("all", "no batch", "optional", "two inputs", "dynamic", "decoupled")
    },
    "complete_config": python("complete", _complete("all", "max_batch_size: 4", *_identity("FP32", "4"))),
    "complete_partly": python("complete", _complete("all", tensor("input", "IN", "FP32", "4"))),
    "complete_scheduler": python(
        "complete", _complete("dynamic", "max_batch_size: 4", "dynamic_batching { preferred_batch_size: [ 2 ] }")
    ),
    "complete_bare": {"1/model.py": source("complete")},
    "cached": python("add_sub", [*_ADD_SUB_INT, "response_cache { enable: true }"]),
    # other issues
    "sequence_direct": python("sequence", _controls("direct { }")),
    "sequence_oldest": python("sequence", _controls("oldest { max_candidate_sequences: 4 }")),
    "bls": python("bls", [tensor("input", "MODEL", "BYTES", "1"), tensor("output", "OUT", "FP32", "1, 16")]),
    "calls": python("calls", _CALLS),
    "contract": {**python("contract", _CALLS), **_BESIDE},
    **{f"contract_{id}": {**python("contract", _CALLS), **_BESIDE} for id in ("life", *_SHOWN_METRICS)},
    "calls_pair": python("calls", _CALLS, instances=2),
    "calls_async": python("calls", [*_CALLS, *_complete("async")]),
    "calls_early": python("calls", [*_CALLS, *_complete("early")]),
    "calls_decoupled": python("calls", [*_CALLS, _DECOUPLED]),
    "calls_decoupled_async": python("calls", [*_CALLS, *_complete("async"), _DECOUPLED]),
    "calls_loaded": python("version", _versioned("version_policy { all { } }"), (1, 2)),
    "calls_loaded_early": python("version", _versioned(""), (1,)),
    "ensemble": ensemble(
        [
            _BATCHED,
            *io("input", ("A", "FP32", "16"), ("B", "FP32", "16")),
            *io("output", ("SUM", "FP32", "16"), ("TWICE", "FP32", "16")),
        ],
        _step("add_sub", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "SUM", "OUTPUT1": "difference"}) + ",",
        _step("add_sub", {"INPUT0": "SUM", "INPUT1": "difference"}, {"OUTPUT0": "TWICE"}),
    ),
    "ensemble_failing": ensemble(
        [tensor("input", "IN", "BYTES", "1"), tensor("output", "RESULT", "INT32", "1")],
        _step("failing", {"HOW": "IN"}, {"OUT": "RESULT"}),
    ),
    "ensemble_repeat": ensemble(
        io("input", ("IN", "INT32", "1")) + io("output", ("RESULT", "INT32", "1")),
        _step("repeat", {"IN": "IN"}, {"OUT": "RESULT"}),
    ),
    "ensemble_absent": ensemble(
        io("input", ("IN", "INT32", "1")) + io("output", ("RESULT", "INT32", "1")),
        _step("nobody", {"IN": "IN"}, {"OUT": "RESULT"}),
    ),
    **{name: python(code, config) for name, (code, config) in PARTS.items()},
    **ENSEMBLES,
    **{name: python(code, config, instances=count) for name, (code, config, count) in SEQUENCES.items()},
    **REFUSED,
}

GUARDED: dict[str, Files] = {
    "add_sub": python("add_sub", [_BATCHED, *_ADD_SUB]),
    "look": python("look", _LOOK),
    "raw": python("identity", [_BATCHED, *_identity("FP32", "-1")]),
    "broken": python("broken", [*_HOW, *_complete("raises")]),
}
POLLING: dict[str, Files] = {
    "steady": python("version", _versioned(""), (1,)),
    "grows": python("version", _versioned("version_policy { all { } }"), (1,)),
    "goes": python("version", _versioned(""), (1,)),
}
_COUNTS = [
    tensor("input", "IN", "INT32", "-1, -1"),
    *io("output", ("OUT", "INT32", "-1, -1"), ("NUMBER", "INT32", "1")),
]
_KEPT = python("counts", [*_COUNTS, "response_cache { enable: true }"])
KEPT_CONFIG = _KEPT["config.pbtxt"]
CACHING: dict[str, Files] = {"kept": _KEPT, "plain": python("counts", _COUNTS)}


def _limited(group: str) -> Files:
    lines = ['backend: "python"', *_identity("INT32", "1"), f"instance_group {{ kind: KIND_CPU {group} }}"]
    return {"config.pbtxt": "\n".join(lines) + "\n", "1/model.py": source("identity")}


def _needing(*resources: str) -> Files:
    return _limited("rate_limiter { " + " ".join(f"resources {{ {one} }}" for one in resources) + " }")


LIMITED: dict[str, Files] = {
    "fits": _needing('name: "R1" count: 1'),
    "too_much": _needing('name: "R1" count: 2'),
    "not_there": _needing('name: "R2" count: 1'),
    "both_and_too_much": _needing('name: "R2" count: 1 global: true', 'name: "R2" count: 1'),
    "both": _needing('name: "R3" count: 1 global: true', 'name: "R3" count: 1'),
    "global_too": _needing('name: "R1" count: 1 global: true'),
    "nameless": _needing("count: 1"),
    "twice": _needing('name: "R1" count: 1', 'name: "R1" count: 1'),
    "nothing": _needing('name: "R9" count: 0'),
    "weighed": _limited('count: 2 rate_limiter { priority: 3 resources { name: "R1" count: 1 } }'),
    **{f"on_{policy}": _limited(f'host_policy: "{policy}"') for policy in ("first", "one", "letter", "open", "node")},
    "on_unknown": _limited('host_policy: "unknown"'),
    "passive": _limited("passive: true"),
}
_REPOSITORIES = {
    "explicit": EXPLICIT,
    "guarded": GUARDED,
    "polling": POLLING,
    "caching": CACHING,
    "limited": LIMITED,
}


def write_repository(folder: Path, profile: str) -> None:
    """Write the repository of one kind of server."""
    for model, files in _REPOSITORIES[profile].items():
        for name, text in files.items():
            path = folder / model / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
