"""Label files of outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.core.errors import InferenceError
from serving_node.scheduling.labels import read_classes

CONFIG = 'max_batch_size: 2 output {{ name: "A" label_filename: "{}" }} output {{ name: "B" }}'


def test_what_stands_between_line_feeds_is_a_label(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes("a\r\n\n b:c\n\N{SNOWMAN}".encode())
    classes = read_classes(parse_pbtxt(CONFIG.format("labels.txt")), tmp_path)
    assert classes.has_rows
    assert classes.labels == {"A": ("a\r", "", " b:c", "\N{SNOWMAN}")}


def test_no_labels_and_no_rows(tmp_path: Path) -> None:
    classes = read_classes(parse_pbtxt('output { name: "A" }'), tmp_path)
    assert not classes.has_rows and classes.labels == {}


@pytest.mark.parametrize(
    ("name", "code", "sentence"),
    [
        ("none", ErrorCode.INTERNAL, "failed to open text file for read .*/none: No such file or directory"),
        ("../outside", ErrorCode.INVALID_ARG, "lies outside the model directory"),
        ("link", ErrorCode.INVALID_ARG, "lies outside the model directory"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, code: ErrorCode, sentence: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (tmp_path / "outside").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(InferenceError, match=sentence) as caught:
        read_classes(parse_pbtxt(CONFIG.format(name)), folder)
    assert caught.value.code is code
