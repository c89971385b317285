from __future__ import annotations

from dataclasses import replace

from registry.domain.checks import CHECK_KINDS, check_kind, kinds_for, place, unknown_kinds


def test_kinds_are_named_once_and_stored_in_32_characters() -> None:
    assert all(kind.name == name and len(name) <= 32 for name, kind in CHECK_KINDS.items())
    assert len({kind.title for kind in CHECK_KINDS.values()}) == len(CHECK_KINDS)
    assert all(kind.label and kind.explanation.endswith(".") for kind in CHECK_KINDS.values())


def test_what_is_no_kind_is_named() -> None:
    assert unknown_kinds(["smoke", "x", "a", "x"]) == ["a", "x"]
    assert check_kind("x") is None


def test_pages_show_kinds_in_the_order_in_which_they_run() -> None:
    assert sorted(["zzz", "config", "files"], key=place) == ["files", "config", "zzz"]


def test_a_kind_without_formats_applies_to_all() -> None:
    assert kinds_for("onnx") == list(CHECK_KINDS.values())
    assert not replace(CHECK_KINDS["code"], formats=frozenset({"python"})).applies_to("onnx")
