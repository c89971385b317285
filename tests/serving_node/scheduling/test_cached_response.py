from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.core.tensor import Tensor
from serving_node.scheduling.cached_response import pack_response, unpack_response

_PARAMETERS = st.dictionaries(
    st.text(max_size=5),
    st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
              st.text(max_size=5)),
    max_size=4,
)  # fmt: skip
_OUTPUTS = st.lists(
    st.one_of(
        st.builds(lambda name, data: Tensor(name, "UINT8", (len(data), 1), data), st.text(), st.binary(max_size=40)),
        st.builds(lambda name, data: Tensor(name, "BYTES", (2,), data), st.text(), st.binary(max_size=40)),
    ),
    max_size=4,
)


@given(outputs=_OUTPUTS, parameters=_PARAMETERS)
def test_it_comes_back_as_it_was(outputs: list[Tensor], parameters: dict[str, Any]) -> None:
    raw = pack_response(outputs, parameters)
    found, others = unpack_response(raw)
    assert [(o.name, o.datatype, o.shape, bytes(o.data)) for o in found] == [
        (o.name, o.datatype, o.shape, bytes(o.data)) for o in outputs
    ]
    assert others == parameters
    assert [type(others[name]) for name in parameters] == [type(value) for value in parameters.values()]


def test_outputs_are_aligned_views_of_it() -> None:
    raw = pack_response([Tensor("a", "UINT8", (3,), b"abc"), Tensor("b", "FP64", (1,), b"12345678")], {"p": 1})
    (_, second), _ = unpack_response(raw)
    assert isinstance(second.data, memoryview)
    assert second.data.obj is raw
    assert raw.index(b"12345678") % 16 == 0
    assert second.data.readonly


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**70, "\ud800"])
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="parameter"):
        pack_response([], {"p": value})


GOOD = pack_response([Tensor("a", "FP32", (2,), b"12345678")], {"p": "q"})


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"FRC1",
        b"FRC2" + GOOD[4:],
        GOOD[:-1],
        GOOD + b"x",
        GOOD.replace(b"FP32", b"FP64"),
        GOOD.replace(b"FP32", b"FP99"),
        GOOD.replace(b"[2]", b"[3]"),
        GOOD.replace(b'"a"', b"123"),
        GOOD.replace(b'"q"', b"[1]"),
        GOOD.replace(b'"q"', b"nul"),
        GOOD.replace(b"[2]", b"{2}"),
        GOOD.replace(b'{"p":"q"}', b"123456789"),
        GOOD.replace(b",8]", b",.8"),
    ],
)
def test_what_is_not_one_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_response(raw)


@pytest.mark.fuzz
@given(raw=st.binary(max_size=80))
def test_any_head_is_read_or_refused(raw: bytes) -> None:
    for text in (raw, GOOD[:8] + raw, GOOD[:20] + raw):
        try:
            outputs, _ = unpack_response(text)
        except ValueError:
            continue
        assert sum(len(tensor.data) for tensor in outputs) <= len(text)
