"""Verdicts beneath files: a check speaks of the files that its evidence names."""

from __future__ import annotations

from typing import Any

from console.web.file_checks import MOST_FILES, checks_by_file
from registry.models import Check


def check(kind: str, **evidence: Any) -> Check:
    return Check(kind=kind, verdict="pass", evidence=evidence)


def kinds(*checks: Check) -> dict[str, list[str]]:
    return {path: [one.kind for one in found] for path, found in checks_by_file(checks)}


def test_each_file_has_the_checks_that_name_it() -> None:
    listed = [{"path": "a.onnx", "size": 1}, {"path": "a.data", "size": 2}]
    assert kinds(
        check("files", files=listed),
        check("signature_verification", files=2),
        check("format", file="a.onnx"),
        check("pickle_scan", files=[{"path": "a.data"}]),
        check("signature", inputs=[]),
    ) == {"a.data": ["files", "pickle_scan"], "a.onnx": ["files", "format", "signature"]}


def test_without_a_model_file_the_rest_speaks_of_the_version() -> None:
    assert kinds(check("files", files=["a.bin"]), check("signature"), check("layout")) == {"a.bin": ["files"]}


def test_long_lists_are_left_out() -> None:
    paths = [f"{number}.txt" for number in range(MOST_FILES + 1)]
    assert kinds(check("files", files=paths)) == {}
    assert len(kinds(check("files", files=paths[1:]))) == MOST_FILES
