"""The shape of the tree: import contracts, module sizes, names, and a node and a command line that stand alone."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["flotilla", "console", "registry", "workers", "serving_node", "conversion", "signatures"]
SOURCES = [
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if "migrations" not in path.parts and "proto" not in path.parts
]


def test_import_contracts_hold_without_ignores() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    assert not [s for s in contracts.sections() if contracts.has_option(s, "ignore_imports")]
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_modules_stay_below_600_lines() -> None:
    too_long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 600}
    assert not too_long


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "manager"}
    assert not [p for p in SOURCES if p.stem in drawers]


def _imports_without(module: str, *blocked: str) -> subprocess.CompletedProcess[str]:
    script = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\nimport {module}\n"
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("module", ["serving_node.server", "serving_node.cli", "serving_node.dataplane"])
def test_node_imports_without_django(module: str) -> None:
    done = _imports_without(module, "django", "rest_framework", "celery", "torch", "onnxruntime", "tensorrt")
    assert done.returncode == 0, done.stderr


def test_command_line_imports_without_django_and_node() -> None:
    done = _imports_without(
        "flotilla.cli", "django", "celery", "numpy", "uvloop", "httptools", "google.protobuf", "psycopg", "torch"
    )
    assert done.returncode == 0, done.stderr


def test_environment_is_read_only_in_settings() -> None:
    allowed = {"env.py", "settings.py"}
    readers = [
        str(p.relative_to(ROOT))
        for p in SOURCES
        if p.name not in allowed and ("os.environ[" in (text := p.read_text()) or "os.getenv(" in text)
    ]
    assert not readers


@pytest.mark.xdist_group("a group")
def test_tests_of_a_group_run_on_one_worker(request: pytest.FixtureRequest) -> None:
    """Tests that share a server rely on it; a runner that forgets groups would start several and let them fight."""
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@a group")
