"""Which files of a folder are sent: ordinary ones with good names, and no links unless they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flotilla.sdk import FolderRefused, files_in
from flotilla.sdk import folder as module
from registry.domain import paths


def test_files_come_with_their_paths_in_order(tmp_path: Path) -> None:
    for name in ("b/model.onnx", "a.txt", "b/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    found = files_in(tmp_path)
    assert [*found] == ["a.txt", "b/.hidden", "b/model.onnx"]
    assert found["b/model.onnx"] == tmp_path / "b" / "model.onnx"


def _outside(folder: Path) -> None:
    (folder.parent / "secret").write_text("key")
    (folder / "weights.bin").symlink_to(folder.parent / "secret")


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def _no_text(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_bytes(b"x")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_outside, "weights.bin is a link; with --follow-links"),
        (lambda folder: (folder / "here").symlink_to("nowhere"), "here is a link that leads nowhere."),
        (lambda folder: (folder / "loop").symlink_to("."), "loop is a link to a folder"),
        (_fifo, "pipe is no ordinary file."),
        (_no_text, "is not UTF-8 text."),
    ],
)
def test_what_can_be_no_file_of_a_version_is_refused(
    tmp_path: Path, make: Callable[[Path], None], sentence: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"x")
    make(folder)
    with pytest.raises(FolderRefused, match=sentence):
        files_in(folder)


def test_links_to_files_are_followed_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    _outside(folder)
    assert [*files_in(folder, follow_links=True)] == ["weights.bin"]
    (folder / "loop").symlink_to(".")
    with pytest.raises(FolderRefused, match="a link to a folder"):
        files_in(folder, follow_links=True)


def test_too_many_files_and_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FolderRefused, match="holds no files"):
        files_in(tmp_path)
    monkeypatch.setattr(module, "MAX_FILES", 2)
    for name in "abc":
        (tmp_path / name).touch()
    with pytest.raises(FolderRefused, match="more than 2 files"):
        files_in(tmp_path)


def test_the_most_files_of_a_version_are_those_of_the_console() -> None:
    assert module.MAX_FILES == paths.MAX_FILES
