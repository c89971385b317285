"""Ensembles, and the models that only they are made of: model name -> files, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Files = dict[str, str]


def step(model: str, inputs: Mapping[str, str], outputs: Mapping[str, str], version: int = -1) -> str:
    """Return a step; the maps go from tensors of the model to tensors of the ensemble."""
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs.items()]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs.items()]
    return f'step {{ model_name: "{model}" model_version: {version} {" ".join(maps)} }}'


def ensemble(config: Iterable[str], *steps: str) -> Files:
    """Return an ensemble."""
    lines = ['platform: "ensemble"', *config, "ensemble_scheduling {", *steps, "}"]
    return {"config.pbtxt": "\n".join(lines) + "\n", "1/.keep": ""}


def tensor(side: str, name: str, kind: str, dims: str, more: str = "") -> str:
    """Return an input or output; ``kind`` is a data type without ``TYPE_``."""
    return f'{side} {{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] {more} }}'


_BATCHED = "max_batch_size: 8"
_PAIR = [tensor("input", "A", "INT32", "4"), tensor("input", "B", "INT32", "4")]
_ONE = [tensor("input", "IN", "INT32", "1"), tensor("output", "RESULT", "INT32", "1")]
_ADD_SUB = [
    *(tensor("input", f"INPUT{number}", "INT32", "4") for number in range(2)),
    *(tensor("output", f"OUTPUT{number}", "INT32", "4") for number in range(2)),
]
_ECHO = [tensor("input", "IN", "INT32", "1"), tensor("output", "OUT", "INT32", "1")]
_SLEEP = [_BATCHED, tensor("input", "SECONDS", "FP32", "1"), tensor("output", "RESULT", "INT32", "1")]
_REPEAT_INPUTS = [tensor("input", "IN", "INT32", "1"), tensor("input", "HOW", "STRING", "1", "optional: true")]

# models in Python: name of the source and config
PARTS: dict[str, tuple[str, list[str]]] = {
    "part_left": ("add_sub", _ADD_SUB),
    "part_right": ("add_sub", _ADD_SUB),
    "part_last": ("add_sub", _ADD_SUB),
    "part_echo": ("identity", _ECHO),
    "failing_last": ("failing_last", [tensor("input", "HOW", "STRING", "1"), tensor("output", "OUT", "INT32", "1")]),
    "part_flat": ("identity", [tensor("input", "IN", "INT32", "4"), tensor("output", "OUT", "INT32", "4")]),
    "part_rows": (
        "identity",
        [_BATCHED, tensor("input", "IN", "INT32", "4"), tensor("output", "OUT", "INT32", "4")],
    ),
    "part_matrix": ("identity", [tensor("input", "IN", "INT32", "-1, 4"), tensor("output", "OUT", "INT32", "-1, 4")]),
    "part_queue": (
        "sleep",
        [
            *_SLEEP[:2],
            tensor("output", "OUT", "INT32", "1"),
            "dynamic_batching { preferred_batch_size: [ 1 ] default_queue_policy { max_queue_size: 1 } }",
        ],
    ),
}


def _both(*steps: str) -> Files:
    sides = [tensor("output", name, "INT32", "4") for name in ("LEFT", "RIGHT", "BOTH")]
    return ensemble([*_PAIR, *sides], *steps)


ENSEMBLES: dict[str, Files] = {
    "pipe_sides": _both(
        step("part_left", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "LEFT"}) + ",",
        step("part_right", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT1": "RIGHT"}) + ",",
        step("part_last", {"INPUT0": "LEFT", "INPUT1": "RIGHT"}, {"OUTPUT0": "BOTH"}),
    ),
    "pipe_forks": ensemble(
        [*_PAIR, *(tensor("output", name, "INT32", "4") for name in ("LEFT", "RIGHT"))],
        step("part_left", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT0": "LEFT"}) + ",",
        step("part_right", {"INPUT0": "A", "INPUT1": "B"}, {"OUTPUT1": "RIGHT"}),
    ),
    "pipe_look": ensemble(
        [
            tensor("input", "SEEN", "INT32", "-1"),
            tensor("input", "EXTRA", "FP32", "1", "optional: true"),
            tensor("output", "TEXT", "STRING", "1"),
            tensor("output", "NUMBER", "INT32", "1"),
        ],
        step("look", {"IN": "SEEN", "MORE": "EXTRA"}, {"OUT": "TEXT", "OTHER": "NUMBER"}),
    ),
    "pipe_outer": ensemble(
        [*_PAIR, tensor("output", "TOP", "INT32", "4")],
        step("pipe_sides", {"A": "A", "B": "B"}, {"LEFT": "left", "BOTH": "both"}) + ",",
        step("part_last", {"INPUT0": "left", "INPUT1": "both"}, {"OUTPUT1": "TOP"}),
    ),
    "pipe_outer_failing": ensemble(
        [tensor("input", "IN", "STRING", "1"), tensor("output", "RESULT", "INT32", "1")],
        step("ensemble_failing", {"IN": "IN"}, {"RESULT": "RESULT"}),
    ),
    "pipe_many": ensemble(
        [*_REPEAT_INPUTS, tensor("output", "RESULT", "INT32", "1")],
        step("repeat", {"IN": "IN", "HOW": "HOW"}, {"OUT": "number"}) + ",",
        step("part_echo", {"IN": "number"}, {"OUT": "RESULT"}),
    ),
    "pipe_many_counted": ensemble(
        [tensor("input", "IN", "INT32", "1"), tensor("output", "RESULT", "INT32", "1")],
        step("repeat", {"IN": "IN"}, {"OUT": "number"}) + ",",
        step("part_echo", {"IN": "number"}, {"OUT": "RESULT"}),
    ),
    "pipe_many_many": ensemble(
        _ONE,
        step("repeat", {"IN": "IN"}, {"OUT": "number"}) + ",",
        step("repeat", {"IN": "number"}, {"OUT": "RESULT"}),
    ),
    "pipe_many_failing": ensemble(
        [tensor("input", "IN", "INT32", "1"), tensor("output", "RESULT", "INT32", "1")],
        step("repeat", {"IN": "IN"}, {"TEXT": "text"}) + ",",
        step("failing_last", {"HOW": "text"}, {"OUT": "RESULT"}),
    ),
    "pipe_flat": ensemble(
        [_BATCHED, tensor("input", "IN", "INT32", "4"), tensor("output", "RESULT", "INT32", "4")],
        step("part_rows", {"IN": "IN"}, {"OUT": "rows"}) + ",",
        step("part_flat", {"IN": "rows"}, {"OUT": "flat"}) + ",",
        step("part_rows", {"IN": "flat"}, {"OUT": "RESULT"}),
    ),
    "pipe_matrix": ensemble(
        [_BATCHED, tensor("input", "IN", "INT32", "4"), tensor("output", "RESULT", "INT32", "4")],
        step("part_matrix", {"IN": "IN"}, {"OUT": "matrix"}) + ",",
        step("part_rows", {"IN": "matrix"}, {"OUT": "RESULT"}),
    ),
    "pipe_unbatched": ensemble(
        [tensor("input", "IN", "INT32", "-1, 4"), tensor("output", "RESULT", "INT32", "-1, 4")],
        step("part_rows", {"IN": "IN"}, {"OUT": "RESULT"}),
    ),
    "pipe_scores": ensemble(
        [
            _BATCHED,
            tensor("input", "IN", "INT32", "1"),
            tensor("output", "BEST", "FP32", "5"),
            tensor("output", "PLAIN", "FP64", "5"),
        ],
        step("scores", {"IN": "IN"}, {"FLOATS": "BEST", "DOUBLES": "PLAIN"}),
    ),
    "pipe_queue": ensemble(_SLEEP, step("part_queue", {"SECONDS": "SECONDS"}, {"OUT": "RESULT"})),
    "pipe_timeout": ensemble(_SLEEP, step("sleep_timeout", {"SECONDS": "SECONDS"}, {"OUT": "RESULT"})),
    "pipe_priority": ensemble(_SLEEP, step("sleep_priority", {"SECONDS": "SECONDS"}, {"OUT": "RESULT"})),
}
