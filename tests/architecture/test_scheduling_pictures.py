"""The pictures of the scheduler come from their tables, and its page has a text for each of its sections."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/scheduling.md"


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_scheduling", ROOT / "scripts/draw_scheduling.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


def test_pictures_are_fresh(drawing: ModuleType) -> None:
    assert drawing.outdated() == [], "run python scripts/draw_scheduling.py"


def test_every_picture_says_in_words_what_it_shows(drawing: ModuleType) -> None:
    for path, text in drawing.drawn().items():
        title, description = list(ElementTree.fromstring(text))[:2]
        assert (title.text or "").strip() and len(description.text or "") > 40, path
        assert f"images/scheduling/{path.name}" in PAGE.read_text(), "no page shows it"


def test_no_two_boxes_of_a_picture_lie_on_each_other(drawing: ModuleType) -> None:
    for path in drawing.TABLES.glob("*.toml"):
        centres = [state.centre for state in drawing.read(path).states.values()]
        for number, (x, y) in enumerate(centres):
            assert not any(abs(x - a) < 140 and abs(y - b) < 52 for a, b in centres[:number]), path.name


def test_a_transition_names_states(drawing: ModuleType, tmp_path: Path) -> None:
    table = tmp_path / "wrong.toml"
    table.write_text('title = "t"\ndescription = "d"\n[states.a]\nat = [0, 0]\n[[transitions]]\nfrom = "a"\nto = "b"\n')
    with pytest.raises(ValueError, match="names 'b', which is no state"):
        drawing.read(table)


def test_no_section_of_the_page_is_empty() -> None:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert [text.split("\n")[0] for text in sections if len(text.split("\n", 1)[1].strip()) < 80] == []
