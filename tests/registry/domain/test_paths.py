from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.paths import clash, path_problem, require_path
from registry.errors import ValidationFailed


@pytest.mark.parametrize("path", ["model.onnx", "1/model.onnx", "a b/c.txt", "weights/é.bin", ".hidden", "a..b"])
def test_good_paths_are_kept(path: str) -> None:
    assert require_path(path) == path


def test_a_name_that_is_no_unicode_is_called_that() -> None:
    assert path_problem("caf\udce9.onnx") == "The file name is no valid Unicode."
    assert path_problem("a\x01b") == "The file name contains a control character."


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../up",
        "a/../b",
        "a/..",
        "./a",
        "a//b",
        "a/",
        "a\\b",
        "c:/x",
        "a\nb",
        "a\0b",
        "x" * 501,
        "a/" + "y" * 256,
        " a",
        "a /b",
        "e\u0301",
    ],
)
def test_bad_paths_are_refused_with_the_field(path: str) -> None:
    with pytest.raises(ValidationFailed) as caught:
        require_path(path)
    assert caught.value.errors[0]["field"] == "path"


@given(st.text(max_size=40))
def test_accepted_paths_never_leave_the_folder(path: str) -> None:
    if not path_problem(path):
        parts = path.split("/")
        assert not path.startswith("/")
        assert "" not in parts
        assert ".." not in parts
        assert "." not in parts
        assert "\\" not in path


def test_a_file_cannot_be_a_folder_too() -> None:
    assert clash(["a", "b/c"]) == ""
    assert "b" in clash(["b", "b/c"])
