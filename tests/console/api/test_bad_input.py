"""What would have been an unexpected error: each of these gets one sentence and a status below 500."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import RequestDataTooBig
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from console.api.parsers import MOST_LEVELS, BoundedJsonParser, storing_problem
from registry.models import ModelVersion
from tests.console.conftest import Cast

VERSIONS = "/api/v1/projects/wren/models/finch/versions/"


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    "document",
    [
        '{"source": {"ci": "a\\u0000b"}}',
        '{"metadata": {"a\\u0000": 1}}',
        '{"metadata": {"half": "\\ud800"}}',
        '{"metadata": {"much": 1e999}}',
        '{"metadata": {"much": -1e999}}',
        '{"metadata": {"no": NaN}}',
        '{"metadata": {"many": 18446744073709551616}}',
        '{"metadata": {"many": [-9223372036854775809]}}',
        '{"metadata": {"a": 1, "a": 2}}',
        '{"metadata": {}, "metadata": {}}',
        '{"metadata": {}, "colour": "blue"}',
        '{"metadata": ' + nested(MOST_LEVELS + 1) + "}",
        '{"metadata": ' + nested(100_000) + "}",
        "[" * 100_000,
        '{"metadata": {"n": ' + "9" * 5000 + "}}",
        "\ufeff{}",
    ],
)
def test_json_that_cannot_be_stored_makes_no_version(cast: Cast, api: Callable[..., Any], document: str) -> None:
    cast.version("finch")
    before = ModelVersion.objects.count()
    answer = api("bob").generic("POST", VERSIONS, document.encode(), content_type="application/json")
    assert answer.status_code == 400, answer.content
    assert answer.json()["detail"]
    assert ModelVersion.objects.count() == before


@pytest.mark.parametrize("cursor", ["cD0yMDI2", "cD16eno", "bz0tMQ", "%FF%FE", "zzz"])
def test_a_cursor_that_is_none_of_ours_is_refused(cast: Cast, api: Callable[..., Any], cursor: str) -> None:
    answer = api("bob").get(f"/api/v1/operations/?cursor={cursor}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["parameter"] == "cursor"


def test_a_chunked_body_stops_at_the_limit(settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10

    class Stream:
        def read(self, size: int = -1) -> bytes:
            return b" " * (64 if size < 0 else size)

    with pytest.raises(RequestDataTooBig):
        BoundedJsonParser().parse(Stream())  # type: ignore[arg-type]


def test_a_name_that_comes_twice_among_very_many_is_found() -> None:
    names = ",".join(f'"{number}":1' for number in range(200_000))
    with pytest.raises(ParseError, match="names “7” twice"):
        BoundedJsonParser().parse(io.BytesIO(f'{{{names},"7":1}}'.encode()))


def test_refusals_are_the_parsers_own() -> None:
    class Stream:
        def __init__(self) -> None:
            self.left = b'{"a": "\\u0000"}'

        def read(self, _size: int = -1) -> bytes:
            left, self.left = self.left, b""
            return left

    with pytest.raises(ParseError, match="NUL"):
        BoundedJsonParser().parse(Stream())  # type: ignore[arg-type]


storable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "ü", "x y"]), inner, max_size=4),
    max_leaves=20,
)


@given(storable)
def test_whatever_can_be_stored_passes(document: Any) -> None:
    assert storing_problem(document) == ""


@given(storable, st.sampled_from(["\0", "a\0b", "\ud800", "ü\udfff", float("inf"), float("-inf")]))
def test_what_cannot_be_stored_is_found_at_any_depth(document: Any, bad: Any) -> None:
    assert storing_problem({"deep": [document, [bad]]})
