"""Requests that are wrong: each mistake in each form."""

from __future__ import annotations

from typing import Any

from tests.differential.cases.infer import ONES, PLAIN, RAMP, add_sub
from tests.differential.steps import Case
from tests.differential.tensors import Out, T, flat, infer_cases

_A, _B = add_sub()
_IN0 = T("IN0", "INT32", [1, 2], [1, 2])


def _both(id: str, model: str, inputs: list[T], outputs: list[Out] | None = None, **more: Any) -> list[Case]:
    return infer_cases(f"bad-{id}", model, inputs, outputs, **more)


def _plain(name: str, datatype: str, shape: list[Any], values: list[Any], raw: bytes | None = None) -> list[T]:
    return [T(name, datatype, shape, values, raw), PLAIN[1]]


def _named() -> tuple[Case, ...]:
    """With a request id, which core messages carry as a prefix."""
    return flat(
        _both("id-unknown-model", "nobody", [_A], models=(), request_id="r7", forms=("json", "raw")),
        _both("id-shape", "plain", _plain("INPUT0", "INT32", [5], [1] * 5), request_id="r7", forms=("json", "raw")),
        _both("id-missing-input", "plain", PLAIN[:1], request_id="r7", forms=("json", "raw")),
        _both(
            "id-unknown-input", "plain", [*PLAIN, T("X", "INT32", [4], [0] * 4)], request_id="r7", forms=("json", "raw")
        ),
        _both("id-batch-size", "add_sub", add_sub(9), request_id="r7", forms=("json", "raw")),
    )


_TEXT = T("IN", "BYTES", [1], ["a"])
CASES = flat(
    _both("unknown-model", "nobody", [_A], models=()),
    _both("unknown-version", "plain", PLAIN, version="7"),
    _both("unloaded-model", "life_never", [T("IN", "INT32", [1], [1])], models=()),
    _both("no-inputs", "add_sub", []),
    _both("missing-input", "add_sub", [_A]),
    _both("missing-both-optional-required", "optional", [T("IN1", "INT32", [1, 2], [1, 2])]),
    _both("optional-too-many", "optional", [_IN0, *(T(f"X{i}", "INT32", [1, 2], [1, 2]) for i in range(3))]),
    _both("unknown-input", "add_sub", [_A, _B, T("X", "FP32", [1, 16], ONES)]),
    _both("unknown-input-instead", "add_sub", [_A, T("X", "FP32", [1, 16], ONES)]),
    _both("twice-input", "add_sub", [_A, _A]),
    _both("twice-input-and-other", "add_sub", [_A, _B, _A]),
    _both("unknown-output", "add_sub", [_A, _B], [Out("X")]),
    _both("twice-output", "add_sub", [_A, _B], [Out("OUTPUT0"), Out("OUTPUT0")]),
    _both("empty-output-name", "add_sub", [_A, _B], [Out("")]),
    _both("empty-input-name", "plain", _plain("", "INT32", [4], [1] * 4)),
    _both("datatype", "plain", _plain("INPUT0", "FP32", [4], [1.0] * 4)),
    _both("datatype-same-size", "plain", _plain("INPUT0", "UINT32", [4], [1] * 4)),
    _both("datatype-text", "plain", _plain("INPUT0", "BYTES", [4], ["a"] * 4)),
    _both(
        "datatype-unknown",
        "plain",
        _plain("INPUT0", "INT33", [4], [1] * 4, b"\0" * 16),
        forms=("json", "binary", "raw"),
    ),
    _both("datatype-empty", "plain", _plain("INPUT0", "", [4], [1] * 4, b"\0" * 16), forms=("json", "binary", "raw")),
    _both(
        "datatype-config-name",
        "plain",
        _plain("INPUT0", "TYPE_INT32", [4], [1] * 4, b"\0" * 16),
        forms=("json", "binary", "raw"),
    ),
    _both("datatype-string", "text", [T("IN", "STRING", [1], ["a"], b"\1\0\0\0a")], forms=("json", "binary", "raw")),
    _both("shape-long", "plain", _plain("INPUT0", "INT32", [5], [1] * 5)),
    _both("shape-short", "plain", _plain("INPUT0", "INT32", [3], [1] * 3)),
    _both("shape-rank", "plain", _plain("INPUT0", "INT32", [1, 4], [1] * 4)),
    _both("shape-scalar", "plain", _plain("INPUT0", "INT32", [], [1])),
    _both("shape-negative", "plain", _plain("INPUT0", "INT32", [-1], [1] * 4)),
    _both("shape-negative-two", "plain", _plain("INPUT0", "INT32", [-4], [1] * 4)),
    _both("shape-zero", "plain", _plain("INPUT0", "INT32", [0], [])),
    _both("shape-batched", "add_sub", [T("INPUT0", "FP32", [1, 17], [*RAMP, 1.0]), _B]),
    _both("shape-batched-rank", "add_sub", [T("INPUT0", "FP32", [1, 4, 4], RAMP), _B]),
    _both("shape-batched-scalar", "add_sub", [T("INPUT0", "FP32", [], [1.0]), _B]),
    _both("shape-no-batch", "add_sub", [T("INPUT0", "FP32", [16], RAMP), T("INPUT1", "FP32", [16], RAMP)]),
    _both("shape-no-batch-small", "raw", [T("IN", "FP32", [2], [1.0, 2.0])]),
    _both(
        "shape-negative-batch", "add_sub", [T("INPUT0", "FP32", [-1, 16], RAMP), T("INPUT1", "FP32", [-1, 16], RAMP)]
    ),
    _both("shape-zero-batch", "add_sub", [T("INPUT0", "FP32", [0, 16], []), T("INPUT1", "FP32", [0, 16], [])]),
    _both("shape-variable-negative", "raw", [T("IN", "FP32", [1, -1], [1.0])]),
    _both("reshaped-shape", "reshaped", [T("IN", "INT32", [1], [1]), T("IN2", "INT32", [1, 2, 2], [1] * 4)]),
    _both("reshaped-by-hand", "reshaped", [T("IN", "INT32", [1, 1], [1]), T("IN2", "INT32", [1, 4], [1] * 4)]),
    _both("batch-size", "add_sub", add_sub(9)),
    _both("batch-size-differs", "add_sub", [_A, T("INPUT1", "FP32", [2, 16], ONES * 2)]),
    _both("few-values", "plain", _plain("INPUT0", "INT32", [4], [1] * 3)),
    _both("many-values", "plain", _plain("INPUT0", "INT32", [4], [1] * 5)),
    _both("no-values", "plain", _plain("INPUT0", "INT32", [4], [])),
    _both("odd-bytes", "plain", _plain("INPUT0", "INT32", [4], [1] * 4, b"\0" * 15), forms=("binary", "raw")),
    _both("texts-few", "texts", [T("IN", "BYTES", [1, 3], ["a", "b"])]),
    _both("texts-many", "texts", [T("IN", "BYTES", [1, 3], ["a", "b", "c", "d"])]),
    _both("texts-cut", "texts", [T("IN", "BYTES", [1, 1], ["a"], b"\5\0\0\0ab")], forms=("binary", "raw")),
    _both("texts-cut-length", "texts", [T("IN", "BYTES", [1, 1], ["a"], b"\5\0")], forms=("binary", "raw")),
    _both("texts-no-length", "texts", [T("IN", "BYTES", [1, 1], ["a"], b"")], forms=("binary", "raw")),
    _both(
        "texts-huge-length", "texts", [T("IN", "BYTES", [1, 1], ["a"], b"\xff\xff\xff\xffab")], forms=("binary", "raw")
    ),
    _both("texts-rest", "texts", [T("IN", "BYTES", [1, 1], ["a"], b"\1\0\0\0abc")], forms=("binary", "raw")),
    _both("texts-not-utf8", "texts", [T("IN", "BYTES", [1, 2], [b"\xff\xfe", b"\0"])], forms=("binary", "raw")),
    *(
        _both(
            f"overflow-{id}",
            # the first two end the model's process there, for good
            f"overflowing_{id}" if form == "json" else "raw_two" if len(shape) == 2 else "raw_one",
            [T("IN", "FP32", shape, [1.0], b"\0" * 4)],
            forms=(form,),
            fatal=form == "json" and id in ("bytes", "beyond-int64", "largest"),
        )
        for id, shape in (
            ("product", [2**32, 2**32]),
            ("bytes", [2**31, 2**31]),
            ("product-by-zero", [2**62, 0]),
            ("beyond-int64", [2**63 - 1, 2]),
            ("largest", [2**63 - 1]),
        )
        for form in ("json", "binary", "raw")
    ),
    _both(
        "reserved-parameter",
        "look",
        [T("IN", "INT32", [1], [1])],
        parameters={"triton_something": 1},
        forms=("json", "raw"),
    ),
    _both(
        "reserved-parameter-known",
        "look",
        [T("IN", "INT32", [1], [1])],
        parameters={"triton_enable_empty_final_response": True},
        forms=("json", "raw"),
    ),
    *(
        _both(f"parameter-{id}", "look", [T("IN", "INT32", [1], [1])], parameters=parameters, forms=("json", "raw"))
        for id, parameters in (
            ("timeout-text", {"timeout": "soon"}),
            ("timeout-bool", {"timeout": True}),
            ("timeout-negative", {"timeout": -1}),
            ("timeout-float", {"timeout": 1.5}),
            ("timeout-huge", {"timeout": 2**64 - 1}),
            ("priority-text", {"priority": "high"}),
            ("priority-negative", {"priority": -1}),
            ("priority-bool", {"priority": True}),
            ("priority-huge", {"priority": 2**64 - 1}),
            ("priority-large", {"priority": 2**32}),
            ("sequence-id-bool", {"sequence_id": True}),
            ("sequence-id-float", {"sequence_id": 1.5}),
            ("sequence-id-negative", {"sequence_id": -1}),
            ("sequence-id-long", {"sequence_id": "x" * 129}),
            ("sequence-start-int", {"sequence_start": 1}),
            ("sequence-end-text", {"sequence_end": "yes"}),
            ("binary-data-output-text", {"binary_data_output": "yes"}),
            ("headers", {"headers": "x"}),
        )
    ),
    _named(),
)
