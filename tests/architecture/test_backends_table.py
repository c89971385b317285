"""The tables of what each backend serves name every backend that there is, with its platforms and an example."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from serving_node.backends import loader
from serving_node.contract.model_config import platforms

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/backends.md").read_text()


def rows(first: str) -> dict[str, list[str]]:
    """Return the cells of a table of the page by the name in the first column. ``first`` is the start of its head."""
    table = PAGE[PAGE.index(first) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    return {name[1]: row for row in cells if (name := re.match(r"\[?`(\w+)`", row[0]))}


def test_every_backend_is_in_both_tables() -> None:
    known = {name for name, backend in loader._KNOWN.items() if find_spec(backend.target.partition(":")[0])}
    assert set(rows("| Backend | Files |")) == known
    assert set(rows("| Backend | `platform` |")) == known


def test_platforms_are_those_of_the_contract() -> None:
    for name, row in rows("| Backend | `platform` |").items():
        own = [platform for platform, backend in platforms._PLATFORM_BACKENDS.items() if backend == name]
        assert re.findall(r"`(\w+)`", row[1]) == own, name


def test_every_example_is_linked_and_there() -> None:
    linked = set(re.findall(r"\.\./\.\./examples/(\w+)/README\.md", PAGE))
    assert linked == {file.parent.name for file in (ROOT / "examples").glob("*/make_model.py")}
