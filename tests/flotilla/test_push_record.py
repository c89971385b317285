"""What is remembered of a push, whatever happened to its file."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flotilla.sdk.push_record import PushRecord, record_of


def noted(path: Path) -> PushRecord:
    with PushRecord(path) as record:
        record.note(version="v1")
        record.note(operation="o1")
    return record


def test_another_process_knows_what_was_noted(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.push"
    first = noted(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with PushRecord(path) as again:
        assert again.is_resumed
        assert (again.version, again.operation) == ("v1", "o1")
        assert again.key("create") == first.key("create") != again.key("submit")
        again.restart()
        assert (again.version, again.operation, again.is_resumed) == ("", "", False)
        assert again.key("create") != first.key("create")
        again.note(version="v2")
    with PushRecord(path) as third:
        assert (third.version, third.operation) == ("v2", "")
        third.forget()
    assert not path.exists()


def test_whoever_comes_while_it_is_used_remembers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.push"
    with PushRecord(path) as first:
        first.note(version="v1")
        with PushRecord(path) as second:
            assert not second.is_resumed
            second.note(version="v2")
            second.forget()
        assert path.exists()
    with PushRecord(path) as third:
        assert third.version == "v1"


@given(cut=st.integers(0, 400))
def test_a_file_cut_anywhere_is_understood_up_to_its_last_whole_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.push"
    noted(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    with PushRecord(path) as record:
        assert record.is_resumed == (lines > 0)
        assert (record.version, record.operation) == ("v1" if lines > 1 else "", "o1" if lines > 2 else "")
        record.note(version="v3")
    with PushRecord(path) as record:
        assert record.version == "v3"


@given(st.binary(max_size=60))
def test_rubbish_counts_as_nothing(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    path = tmp_path_factory.mktemp("rubbish") / "x.push"
    path.write_bytes(rubbish + b"\n")
    with PushRecord(path) as record:
        assert not record.is_resumed
        record.note(version="v1")
    with PushRecord(path) as record:
        assert record.version == "v1"


def test_a_folder_that_cannot_be_written_to_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with PushRecord(tmp_path / "file" / "x.push") as record:
        assert not record.is_resumed
        record.note(version="v1")
        assert record.version == "v1"
        record.forget()


def test_what_differs_has_a_record_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(os.urandom(300_000))
    facts: dict[str, Any] = {"server": "https://a", "project": "p", "model": "m"}

    def name(what: dict[str, Any], path: str = "model.onnx") -> str:
        before = set(tmp_path.glob("*.push"))
        with record_of(tmp_path, what=what, files={path: file}):
            (made,) = set(tmp_path.glob("*.push")) - before or before
        return made.name

    names = {name(facts), name(facts | {"server": "https://b"}), name(facts | {"model": "n"}), name(facts, "other")}
    assert len(names) == 4


def test_old_records_are_removed(tmp_path: Path) -> None:
    file, old = tmp_path / "f", tmp_path / "old.push"
    for path in (file, old):
        path.write_text("")
    os.utime(old, (0, 0))
    with record_of(tmp_path, what={}, files={"f": file}):
        assert not old.exists()
