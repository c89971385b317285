"""The reference says what the code says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from console.description import document
from registry.domain import states
from registry.selectors.permissions import PERMISSIONS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"


def first_column(page: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)`", (REFERENCE / page).read_text(), re.MULTILINE))


def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "scripts/generate_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_is_described_and_no_other() -> None:
    read = {
        node.args[0].value
        for path in (ROOT / "console/settings").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "env"
        and isinstance(node.args[0], ast.Constant)
    }
    assert first_column("settings.md") == read


def test_every_permission_is_described() -> None:
    assert first_column("permissions.md") == PERMISSIONS


def test_every_address_is_described() -> None:
    text = (REFERENCE / "rest-api.md").read_text()
    for path, operations in document()["paths"].items():
        for method in operations:
            assert f"| `{method.upper()}` | `{path.removeprefix('/api/v1/')}` |" in text


def test_every_state_is_drawn() -> None:
    text = (REFERENCE / "states.md").read_text()
    for (noun, column), table in states.TABLES.items():
        assert f"## {noun}.{column}" in text
        assert all(f"  {before} --> {after}\n" in text for before, targets in table.items() for after in targets)
