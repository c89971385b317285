"""Headers that become parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.frontends.header_forwarding import RESERVED_NAMES, HeaderForwarding

HEADERS = [(b"Host", b"node"), (b"My_Header", b"one"), (b"my_header", b"two"), (b"X-Tail", b"")]


def test_no_pattern_chooses_nothing() -> None:
    assert not HeaderForwarding()
    assert HeaderForwarding().collect(HEADERS) == {}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("my_header", {"My_Header": "one", "my_header": "two"}),
        ("(?-i)my_header", {"my_header": "two"}),
        ("(?-i:my)_HEADER", {"my_header": "two"}),
        ("(?i)my_header", {"My_Header": "one", "my_header": "two"}),
        ("eader", {"My_Header": "one", "my_header": "two"}),
        ("^header", {}),
        ("^(X-Tail|Host)$", {"Host": "node", "X-Tail": ""}),
        (r"^X-Tail\z", {"X-Tail": ""}),
        ("(?-i)^[[:upper:]][[:lower:]]+$", {"Host": "node"}),
        ("nothing", {}),
    ],
)
def test_pattern(pattern: str, expected: dict[str, str]) -> None:
    forwarding = HeaderForwarding(pattern)
    assert forwarding
    assert forwarding.collect(HEADERS) == expected
    assert forwarding.collect(HEADERS) == expected  # now from memory


def test_the_last_of_repeated_headers_counts() -> None:
    assert HeaderForwarding("a").collect([(b"a", b"1"), (b"a", b"2")]) == {"a": "2"}


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "triton_anything"])
def test_reserved_names(name: str) -> None:
    with pytest.raises(InferenceError) as caught:
        HeaderForwarding(".*").collect([(name.encode(), b"1")])
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == f"Header '{name}' is reserved for Triton usage and cannot be forwarded."
    assert HeaderForwarding("x-").collect([(name.encode(), b"1")]) == {}


@pytest.mark.parametrize(
    "pattern", ["(", "[", "*", "a{2,1}", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "(?>a)", "[[:nothing:]]"]
)
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"regular expression|not allowed|not known"):
        HeaderForwarding(pattern)


def test_long_names_are_not_matched() -> None:
    assert HeaderForwarding("a").collect([(b"a" * 257, b"1"), (b"a" * 256, b"1")]) == {"a" * 256: "1"}


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=8))
def test_any_bytes(pairs: list[tuple[bytes, bytes]]) -> None:
    forwarding = HeaderForwarding("[a-m]|[^ -~]")
    names = {name.decode("latin-1") for name, _ in pairs}
    if any(name in RESERVED_NAMES or name.startswith("triton_") for name in names):
        with pytest.raises(InferenceError, match="is reserved for Triton usage"):
            forwarding.collect(pairs)
    else:
        assert set(forwarding.collect(pairs)) <= names
