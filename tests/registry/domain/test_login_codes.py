"""Codes are read however they are typed."""

from __future__ import annotations

import secrets

from hypothesis import given
from hypothesis import strategies as st

from registry.domain.login_codes import ALPHABET, new_code, read_code


@given(st.text(ALPHABET, min_size=8, max_size=8), st.lists(st.integers(0, 8)), st.booleans())
def test_spaces_dashes_and_small_letters_do_not_matter(letters: str, gaps: list[int], small: bool) -> None:
    typed = letters
    for gap in gaps:
        typed = f"{typed[:gap]} -{typed[gap:]}"
    wanted = f"{letters[:4]}-{letters[4:]}"
    assert read_code((typed.lower() if small else typed)[:64]) in {wanted, ""}
    assert read_code(letters.lower()) == wanted


@given(st.text())
def test_what_is_no_code_is_empty_or_a_code(text: str) -> None:
    code = read_code(text)
    assert code == "" or (len(code) == 9 and set(code) <= {*ALPHABET, "-"})


def test_new_codes_read_as_themselves() -> None:
    code = new_code(secrets.choice)
    assert read_code(code) == code
