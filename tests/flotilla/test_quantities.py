"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.templatetags.flotilla import size as size_of_pages
from flotilla.sdk.quantities import counted, size, size_of


def test_one_and_many() -> None:
    assert [counted(count, "file") for count in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert counted(2, "check warns", "checks warn") == "2 checks warn"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1229, "1.2 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@given(st.integers(0, 1 << 60))
def test_command_line_and_pages_say_the_same(count: int) -> None:
    assert size(count) == size_of_pages(count)


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [(16 << 20, 50 << 20, "16.0 of 50.0 MiB"), (512, 3072, "512 B of 3.0 KiB"), (0, 0, "0 of 0 B")],
)
def test_parts_of_a_whole(done: int, total: int, text: str) -> None:
    assert size_of(done, total) == text
