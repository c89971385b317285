"""Inference that succeeds, in every form: shapes, batches, versions, parameters, outputs, classification."""

from __future__ import annotations

from tests.differential.steps import Case
from tests.differential.tensors import DATATYPES, FORMS, Out, T, flat, http_binary, http_json, infer_cases

ONES = [1.0] * 16
RAMP = [float(i) for i in range(16)]


def add_sub(rows: int = 1) -> list[T]:
    """Return the inputs of add_sub."""
    return [T("INPUT0", "FP32", [rows, 16], RAMP * rows), T("INPUT1", "FP32", [rows, 16], ONES * rows)]


PLAIN = [T("INPUT0", "INT32", [4], [1, -2, 3, 2**31 - 1]), T("INPUT1", "INT32", [4], [5, 6, -7, 1])]

# Values at the edges of each datatype; those that JSON can carry for the JSON form.
VALUES: dict[str, list[object]] = {
    "BOOL": [True, False, True],
    "UINT8": [0, 1, 255],
    "UINT16": [0, 1, 65535],
    "UINT32": [0, 1, 2**32 - 1],
    "UINT64": [0, 2**53 + 1, 2**64 - 1],
    "INT8": [-128, 0, 127],
    "INT16": [-32768, 0, 32767],
    "INT32": [-(2**31), 0, 2**31 - 1],
    "INT64": [-(2**63), 2**53 + 1, 2**63 - 1],
    "FP16": [0.5, -65504.0, 0.1],
    "FP32": [0.1, -3.4e38, 1e-45],
    "FP64": [0.1, 1.7e308, 5e-324],
    "BYTES": ["", "caf\u00e9 \u2603", 'quote " back \\ slash\n\t'],
    "BF16": [1.0, -2.5, 3.0e38],
}


def _forms(datatype: str) -> list[str]:
    return [form for form in FORMS if not (datatype in ("FP16", "BF16") and form in ("json", "typed"))]


def _datatypes() -> list[Case]:
    cases: list[Case] = []
    for kind, values in VALUES.items():
        name, out = f"IN_{kind}", [Out(f"OUT_{kind}")]
        forms = _forms(kind)
        cases += infer_cases(f"type-{kind}", "types", [T(name, kind, [3], values)], out, forms=forms)
        cases += infer_cases(f"type-{kind}-empty", "types", [T(name, kind, [0], [])], out, forms=forms)
        cases += infer_cases(
            f"type-{kind}-batch", "types_batched", [T(name, kind, [2, 3], values + values)], out, forms=forms
        )
        # binary in, JSON out and the other way round
        tensor = T(name, kind, [3], values)
        cases.append(
            Case(f"type-{kind}-binary-to-json", (http_binary("types", [tensor], out, binary_output=False),), ("types",))
        )
        if "json" in forms:
            binary = [Out(f"OUT_{kind}", {"binary_data": True})]
            cases.append(Case(f"type-{kind}-json-to-binary", (http_json("types", [tensor], binary),), ("types",)))
    return cases


def _json_numbers() -> list[Case]:
    """What JSON may hold where a number of a datatype is expected."""
    tried: dict[str, tuple[str, object]] = {
        "fraction-as-int": ("INT32", 1.7),
        "text-as-int": ("INT32", "1"),
        "bool-as-int": ("INT32", True),
        "null-as-int": ("INT32", None),
        "object-as-int": ("INT32", {}),
        "exponent-as-int": ("INT32", 1e2),
        "too-large-int8": ("INT8", 300),
        "negative-uint8": ("UINT8", -1),
        "too-large-int32": ("INT32", 2**31),
        "too-large-int64": ("INT64", 2**63),
        "too-large-uint64": ("UINT64", 2**64),
        "negative-uint64": ("UINT64", -1),
        "int-as-bool": ("BOOL", 1),
        "text-as-bool": ("BOOL", "true"),
        "int-as-float": ("FP32", 3),
        "text-as-float": ("FP32", "3.0"),
        "too-large-float": ("FP32", 1e39),
        "large-double": ("FP64", 1e308),
        "nan": ("FP32", float("nan")),
        "infinity": ("FP64", float("-inf")),
        "nan-as-int": ("INT32", float("nan")),
        "bool-as-float": ("FP64", True),
        "int-as-text": ("BYTES", 3),
        "null-as-text": ("BYTES", None),
        "array-as-text": ("BYTES", ["a"]),
        "half": ("FP16", 1.0),
        "brain": ("BF16", 1.0),
    }
    return [
        Case(
            f"json-value-{id}",
            (http_json("types", [T(f"IN_{kind}", kind, [1], [value])], [Out(f"OUT_{kind}")]),),
            ("types",),
        )
        for id, (kind, value) in tried.items()
    ]


def _classification() -> list[Case]:
    cases: list[Case] = []
    for name in ("FLOATS", "DOUBLES", "HALVES", "INTS", "BYTES", "BOOLS", "TEXTS"):
        for count in (1, 3, 9) if name in ("FLOATS", "INTS") else (2,):
            cases += infer_cases(
                f"classes-{name}-{count}",
                "scores",
                [T("IN", "INT32", [2, 1], [1, 2])],
                [Out(name, {"classification": count})],
                forms=("json", "raw"),
                fatal=name == "TEXTS",
            )
    more: dict[str, dict[str, object]] = {
        "zero": {"classification": 0},
        "negative": {"classification": -1},
        "text": {"classification": "two"},
        "fraction": {"classification": 1.5},
        "bool": {"classification": True},
        "binary": {"classification": 2, "binary_data": True},
    }
    for id, parameters in more.items():
        cases += infer_cases(
            f"classes-parameter-{id}",
            "scores",
            [T("IN", "INT32", [1, 1], [1])],
            [Out("FLOATS", parameters)],
            forms=("json",) if id == "binary" else ("json", "raw"),
        )
    return cases


CASES = flat(
    infer_cases("add-sub", "add_sub", add_sub()),
    infer_cases("add-sub-id", "add_sub", add_sub(), request_id="my id/1"),
    infer_cases("add-sub-batch", "add_sub", add_sub(8)),
    infer_cases("add-sub-version", "add_sub", add_sub(), version="1"),
    infer_cases("add-sub-one-output", "add_sub", add_sub(), [Out("OUTPUT1")]),
    infer_cases("add-sub-outputs-turned", "add_sub", add_sub(), [Out("OUTPUT1"), Out("OUTPUT0")]),
    infer_cases("add-sub-inputs-turned", "add_sub", add_sub()[::-1]),
    infer_cases("add-sub-no-outputs-listed", "add_sub", add_sub(), []),
    infer_cases("plain-wraps", "plain", PLAIN),
    infer_cases("two-instances", "several", add_sub(2)),
    infer_cases("warmed-up", "warm", add_sub(2)),
    infer_cases("optional-none", "optional", [T("IN0", "INT32", [1, 2], [1, 2])]),
    infer_cases("optional-one", "optional", [T("IN0", "INT32", [1, 2], [1, 2]), T("IN2", "INT32", [1, 2], [3, 4])]),
    infer_cases(
        "optional-all",
        "optional",
        [T(f"IN{i}", "INT32", [2, 2], [i, 2, 3, 4]) for i in (2, 0, 1)],
        [Out("OUT2"), Out("OUT0")],
    ),
    infer_cases("optional-output-without-input", "optional", [T("IN0", "INT32", [1, 2], [1, 2])], [Out("OUT1")]),
    infer_cases("ragged", "ragged", [T("IN", "INT32", [1, 5], [1, 2, 3, 4, 5])]),
    infer_cases("ragged-batch", "ragged", [T("IN", "INT32", [2, 2], [1, 2, 3, 4])]),
    infer_cases(
        "reshaped", "reshaped", [T("IN", "INT32", [3, 1], [1, 2, 3]), T("IN2", "INT32", [3, 2, 2], list(range(12)))]
    ),
    infer_cases("versions-latest", "v_latest", [T("IN", "INT32", [1], [1])]),
    *(
        infer_cases(f"versions-all-{v}", "v_all", [T("IN", "INT32", [1], [1])], version=v, forms=("json", "raw"))
        for v in ("", "1", "2", "10", "3", "0", "01", "-1", "abc", "1.0", "99999999999999999999")
    ),
    *(
        infer_cases(f"versions-two-{v}", "v_two", [T("IN", "INT32", [1], [1])], version=v, forms=("json", "raw"))
        for v in ("", "1", "2", "10")
    ),
    *(
        infer_cases(f"versions-some-{v}", "v_some", [T("IN", "INT32", [1], [1])], version=v, forms=("json", "raw"))
        for v in ("", "1", "10")
    ),
    infer_cases("versions-odd-folders", "v_odd", [T("IN", "INT32", [1], [1])], forms=("json", "raw")),
    infer_cases("zero-rows", "raw", [T("IN", "FP32", [0, 2], [])]),
    infer_cases("zero-columns", "raw", [T("IN", "FP32", [1, 0], [])]),
    _datatypes(),
    _json_numbers(),
    _classification(),
)
assert set(VALUES) == set(DATATYPES)
