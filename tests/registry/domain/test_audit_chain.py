"""The chain by itself: whatever happens to the lines, it is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.audit_chain import GENESIS, SEALED_FIELDS, seal_hash, verify_lines

Line = dict[str, Any]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def chained(contents: list[Any], chain: str = "p-1") -> list[Line]:
    lines: list[Line] = []
    previous = GENESIS
    for sequence, content in enumerate(contents, 1):
        line: Line = dict.fromkeys(SEALED_FIELDS, "x")
        line |= {"chain": chain, "sequence": sequence, "previous": previous, "after": content}
        line["project"] = "None" if chain == "site" else chain
        line["hash"] = previous = seal_hash(line)
        lines.append(line)
    return lines


@given(st.lists(values, min_size=1, max_size=8))
def test_a_chain_holds_after_a_trip_through_json(contents: list[Any]) -> None:
    lines = [json.loads(json.dumps(line)) for line in chained(contents) + chained(contents, "site")]
    assert [(r.chain, r.is_whole, r.checked) for r in verify_lines(lines)] == [
        ("p-1", True, len(contents)),
        ("site", True, len(contents)),
    ]


@given(st.lists(values, min_size=1, max_size=8), st.data())
def test_any_change_is_seen(contents: list[Any], data: st.DataObject) -> None:
    lines = chained(contents)
    at = data.draw(st.integers(0, len(lines) - 1))
    field = data.draw(st.sampled_from([name for name in SEALED_FIELDS if name not in ("chain", "sequence")]))
    lines[at] = {**lines[at], field: {"forged": True}}
    report = verify_lines(lines)[0]
    assert (report.ok, report.bad_sequence, report.checked) == (False, at + 1, at)


@given(st.integers(3, 9), st.data())
def test_lines_that_are_gone_doubled_or_moved_are_seen(count: int, data: st.DataObject) -> None:
    lines = chained([*range(count)])
    at = data.draw(st.integers(1, count - 2))
    gone = verify_lines(lines[:at] + lines[at + 1 :])[0]
    assert (gone.ok, gone.is_whole, gone.gaps) == (True, False, 1)
    assert not verify_lines(lines[: at + 1] + lines[at:])[0].ok
    moved = [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]
    assert not verify_lines(moved)[0].ok
    tail = verify_lines(lines[at:])[0]
    assert (tail.ok, tail.is_whole, tail.first) == (True, False, at + 1)


def test_a_line_of_another_project_is_seen() -> None:
    lines = chained([1, 2])
    lines[1]["project"] = "p-2"
    lines[1]["hash"] = seal_hash(lines[1])
    assert verify_lines(lines)[0].problem == "its event belongs to another chain"


def test_what_is_not_sealed_yet_is_left_out() -> None:
    late = {**chained([1])[0], "sequence": None, "hash": None}
    assert [report.checked for report in verify_lines([*chained([1]), late])] == [1]


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ("".join(json.dumps(line) + "\n" for line in chained([1, 2])), 0, "p-1: 2 events, whole"),
        ("".join(json.dumps(line) + "\n" for line in chained([1, 2])[1:]), 0, "p-1: 1 events hold; it is an excerpt"),
        (json.dumps({**chained([1])[0], "actor": "other"}), 1, "p-1: BROKEN at 1: its event was changed"),
        (json.dumps({**chained([1])[0], "sequence": None, "hash": None}), 0, "1 events are not sealed"),
        ("", 0, "0 events are not sealed"),
        ("nonsense", 2, "This is no export of an audit log"),
        ("{}", 2, "This is no export of an audit log"),
        ("[1]", 2, "This is no export of an audit log"),
    ],
)
def test_as_a_program(given: str, status: int, said: str) -> None:
    command = [sys.executable, "-m", "registry.domain.audit_chain"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert done.stdout.startswith(said)
