"""Digests: golden vectors that must never change, because databases and nodes keep them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.control import FileRef
from serving_node.contract.digests import config_digest, manifest_digest, plan_digest
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import canonical_json, normalise, parse_json, parse_pbtxt
from tests.contract.configs import FULL

EMPTY_OBJECT = hashlib.sha256(b"{}").hexdigest()
A, B = "a" * 64, "b" * 64

CONFIGS = [
    ("", "{}"),
    ('name: "m" max_batch_size: 8', '{"max_batch_size":8,"name":"m"}'),
    (
        'name: "ü" input { name: "x" dims: [-1, 3] data_type: TYPE_BF16 } dynamic_batching {}',
        '{"dynamic_batching":{},"input":[{"data_type":"TYPE_BF16","dims":[-1,3],"name":"x"}],"name":"ü"}',
    ),
    (
        "model_metrics { metric_control { histogram_options { buckets: [0.1, 1e21, 5] } } }",
        '{"model_metrics":{"metric_control":[{"histogram_options":{"buckets":[0.1,1e+21,5]}}]}}',
    ),
    (
        "sequence_batching { direct { minimum_slot_utilization: 0.1 } }",
        '{"sequence_batching":{"direct":{"minimum_slot_utilization":0.1}}}',
    ),
]


@pytest.mark.parametrize(("text", "canonical"), CONFIGS)
def test_config_digest_is_over_canonical_json(text: str, canonical: str) -> None:
    config = parse_pbtxt(text)
    assert canonical_json(config).decode() == canonical
    assert config_digest(config) == hashlib.sha256(canonical.encode()).hexdigest()


def test_golden_config_digests() -> None:
    assert config_digest(parse_pbtxt(FULL)) == "261a771185ff993096a3fbc06c5713dadf7aef8f439dcfa7f25e8347a58dbd4f"
    assert (
        config_digest(normalise(parse_pbtxt(FULL)))
        == "b79ecf044a48fb73a13cdb0fdbdce08b9cf1d43f3b12a8f08303983d63620bcd"
    )
    assert config_digest(parse_json("{}")) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_golden_manifest_digest() -> None:
    files = [FileRef("model.onnx", B, 9), FileRef("data/weights.bin", A, 0)]
    expected = hashlib.sha256(f'[["data/weights.bin",0,"{A}"],["model.onnx",9,"{B}"]]'.encode()).hexdigest()
    assert manifest_digest(files) == expected == "0a1045ce208b152515dde0f54bc00d8942b1afc0db3788a565c785b766bef946"
    assert manifest_digest(reversed(files)) == expected


def test_an_empty_manifest_has_a_digest() -> None:
    assert manifest_digest([]) == hashlib.sha256(b"[]").hexdigest()


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "./a", "a/./b", "../a", "a/..", "a\\b", "a\nb", "a\x00", "\ud800"]
)
def test_a_path_that_is_not_normalised_is_refused(path: str) -> None:
    with pytest.raises(ContractError, match="is not a normalised relative path"):
        manifest_digest([FileRef(path, A, 1)])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([FileRef("a", A, 1), FileRef("a", B, 2)], "file 'a' is listed twice"),
        ([FileRef("a", A, -1)], "file 'a' cannot have a size of -1 bytes"),
        ([FileRef("a", A, 2**53)], "file 'a' cannot have a size of 9007199254740992 bytes"),
        ([FileRef("a", "A" * 64, 1)], f"file 'a': '{'A' * 64}' is not a SHA-256 in lower-case hex"),
        ([FileRef("a", "a" * 63, 1)], "is not a SHA-256 in lower-case hex"),
        ([FileRef("a", A + "\n", 1)], "is not a SHA-256 in lower-case hex"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(files: list[FileRef], message: str) -> None:
    with pytest.raises(ContractError) as caught:
        manifest_digest(files)
    assert message in caught.value.message
    assert caught.value.field == "a"


@given(st.dictionaries(st.from_regex(r"[a-z]{1,4}(/[a-z]{1,4})?", fullmatch=True), st.integers(0, 9)), st.randoms())
def test_order_of_files_does_not_matter(sizes: dict[str, int], random: Any) -> None:
    files = [FileRef(path, A, size) for path, size in sizes.items()]
    shuffled = list(files)
    random.shuffle(shuffled)
    assert manifest_digest(shuffled) == manifest_digest(files)


def test_golden_plan_digest() -> None:
    # The example of RFC 8785, section 3.2.2, as far as its numbers fit a plan.
    plan = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '€$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    canonical = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert plan_digest(plan) == hashlib.sha256(canonical.encode()).hexdigest()
    assert plan_digest({}) == EMPTY_OBJECT
    assert plan_digest({"b": 1, "a": 2}) == plan_digest({"a": 2, "b": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, object(), b"bytes", "\ud800", {1: 2}])
def test_a_plan_without_canonical_json_is_refused(value: Any) -> None:
    with pytest.raises(ContractError, match="the plan has no canonical JSON"):
        plan_digest({"key": value})
