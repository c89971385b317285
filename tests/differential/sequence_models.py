"""Models with sequences: model name -> name of the source, config, number of instances."""

from __future__ import annotations

_FLAGS = "int32_false_true: [ 0, 1 ]"


def _controls(flags: str = _FLAGS, id_type: str = "UINT64") -> str:
    named = [(name, flags) for name in ("START", "END", "READY")] + [("CORRID", f"data_type: TYPE_{id_type}")]
    return " ".join(
        f'control_input {{ name: "{name}" control {{ kind: CONTROL_SEQUENCE_{name} {how} }} }}' for name, how in named
    )


def _tensor(side: str, name: str, kind: str, dims: str = "1") -> str:
    return f'{side} {{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] }}'


def _rows(strategy: str, *, batch: int = 4, dims: str = "1", idle: int = 60_000_000, controls: str = "") -> list[str]:
    return [
        f"max_batch_size: {batch}",
        f"sequence_batching {{ max_sequence_idle_microseconds: {idle} {strategy} {controls or _controls()} }}",
        _tensor("input", "IN", "INT32", dims),
        _tensor("output", "SEEN", "STRING"),
    ]


def _passes(strategy: str) -> list[str]:
    start = f'control_input {{ name: "START" control {{ kind: CONTROL_SEQUENCE_START {_FLAGS} }} }}'
    return [
        "max_batch_size: 2",
        f"sequence_batching {{ iterative_sequence: true {strategy} {start} }}",
        _tensor("input", "IN", "INT32"),
        _tensor("output", "OUT", "STRING"),
    ]


def _keeps(*outputs: str) -> list[str]:
    first = 'initial_state { name: "nothing" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true }'
    state = f'state {{ input_name: "OLD" output_name: "NEW" data_type: TYPE_INT32 dims: [ 1 ] {first} }}'
    return [
        "max_batch_size: 2",
        f"sequence_batching {{ direct {{ }} {state} }}",
        _tensor("input", "IN", "INT32"),
        *(_tensor("output", name, "INT32") for name in outputs),
    ]


def _oldest(candidates: int) -> str:
    return f"oldest {{ max_candidate_sequences: {candidates} }}"


SEQUENCES: dict[str, tuple[str, list[str], int]] = {
    "rows_direct": ("rows", _rows("direct { }"), 1),
    "rows_neither": ("rows", _rows(""), 1),
    "rows_shapes": ("rows", _rows("direct { }", dims="-1"), 1),
    "rows_two": ("rows", _rows("direct { }", batch=2), 2),
    "rows_share": (
        "rows",
        _rows("direct { max_queue_delay_microseconds: 700000 minimum_slot_utilization: 0.5 }"),
        1,
    ),
    "rows_idle": ("rows", _rows("direct { }", idle=500_000), 1),
    "rows_flat": ("rows", _rows("direct { }", batch=0), 1),
    "rows_oldest": ("rows", _rows(_oldest(4)), 1),
    "rows_oldest_flat": ("rows", _rows(_oldest(4), batch=0), 1),
    "rows_one": ("rows", _rows(_oldest(1)), 1),
    "rows_preferred": (
        "rows",
        _rows(
            "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 700000"
            " preserve_ordering: true }"
        ),
        1,
    ),
    "rows_floats": ("rows", _rows("direct { }", controls=_controls("fp32_false_true: [ 0, 2.5 ]", "INT32")), 1),
    "rows_bools": ("rows", _rows("direct { }", controls=_controls("bool_false_true: [ false, true ]", "UINT32")), 1),
    "rows_signed": ("rows", _rows("direct { }", controls=_controls(id_type="INT64")), 1),
    "rows_text": ("rows", _rows("direct { }", controls=_controls(id_type="STRING")), 1),
    "passes_oldest": ("passes", _passes(_oldest(2)), 1),
    "passes_direct": ("passes", _passes("direct { }"), 1),
    "keeps": ("keeps", _keeps("OUT"), 1),
    "keeps_seen": ("keeps", _keeps("OUT", "NEW"), 1),
}
