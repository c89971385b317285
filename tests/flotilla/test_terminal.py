"""What others wrote does not steer the terminal of who reads it."""

from __future__ import annotations

import sys
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.commands.context import CommandFailed, show, table
from flotilla.commands.progress import Display
from flotilla.commands.terminal import visible
from flotilla.sdk.following import Step

HOSTILE = "good\x1b]52;c;Y3VybA==\x07\r\u202ebad"
HARMLESS = "good\\x1b]52;c;Y3VybA==\\x07\\r\\u202ebad"


def test_text_keeps_its_lines_and_loses_what_steers() -> None:
    assert visible(f"a\tb\r\n{HOSTILE}\n") == f"a\tb\r\n{HARMLESS}\n"


@given(st.text())
def test_nothing_steers(text: str) -> None:
    shown = visible(text).replace("\r\n", "\n")
    assert not [one for one in shown if one not in "\n\t" and (ord(one) < 32 or 127 <= ord(one) < 160)]


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, HARMLESS), (False, HOSTILE)])
def test_files_get_what_there_is(
    is_terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    show({}, False, lambda: HOSTILE)
    assert capsys.readouterr().out == f"{shown}\n"


def test_errors_and_steps_are_shown_alike() -> None:
    stream = StringIO()
    Display(stream, "log").tell(Step("checks", "done", HOSTILE))
    assert "\x1b" not in stream.getvalue() and "\\x1b]52" in stream.getvalue()
    assert CommandFailed(HOSTILE).message == HARMLESS


def test_a_row_of_a_table_is_a_line() -> None:
    assert table([["a\nb   admin", "c"]], ["NAME", "ROLE"]).splitlines()[1:] == ["a b   admin  c"]
