"""Which files are shown as text, and how much of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.previews import MAX_LINE, preview


@pytest.mark.parametrize("head", [b"\0", b"a\x01b", b"\xff\xfe", b"\x89PNG", "é".encode()[:1]])
def test_what_is_no_text(head: bytes) -> None:
    assert not preview(head, len(head)).is_text


@given(st.text(alphabet="aé漢😀\n\t", max_size=40), st.integers(min_value=0, max_value=200))
def test_a_text_cut_anywhere_is_a_text(text: str, length: int) -> None:
    whole = text.encode()
    shown = preview(whole[:length], len(whole))
    assert shown.is_text and "\n".join(text.splitlines()).startswith(shown.text)
    assert shown.is_cut == (length < len(whole))


def test_a_line_without_end_is_cut() -> None:
    shown = preview(b"x" * 5000, 5000)
    assert shown.is_cut and len(shown.text) == MAX_LINE
