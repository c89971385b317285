"""What decides on compiled modules. That they answer as their source does is shown by make test-compiled."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving_node.cli import compile_modules
from serving_node.compiled import finder, sets
from serving_node.compiled.finder import CompiledFinder, use
from serving_node.compiled.sets import MODULES, PACKAGE, SUFFIX, WORKER, WORKER_MODULES, digest, source_file


def trees() -> dict[str, ast.Module]:
    """Return the node's modules, named from the package."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text())
        for path in PACKAGE.rglob("*.py")
    }


def test_the_modules_are_there() -> None:
    assert all(source_file(module).is_file() for module in MODULES)
    assert all((PACKAGE / WORKER / f"{module}.py").is_file() for module in WORKER_MODULES)
    assert list(MODULES) == sorted(set(MODULES))


def test_no_interpreted_class_derives_from_a_compiled_one() -> None:
    found = trees()
    compiled = {
        (f"serving_node.{module}", node.name)
        for module in MODULES
        for node in ast.walk(found[module])
        if isinstance(node, ast.ClassDef)
    }
    wrong: list[str] = []
    for module, tree in found.items():
        if module in MODULES:
            continue
        imported = {
            (alias.asname or alias.name): (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                wrong += [f"{module}.{node.name}" for base in bases if imported.get(base) in compiled]
    assert wrong == []


def test_constructors_of_compiled_classes_are_called_with_named_arguments() -> None:
    """The compiler passes ``**more`` on as if it were an argument."""
    found = trees()
    for module in MODULES:
        for node in ast.walk(found[module]):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
                assert all(keyword.arg for keyword in node.keywords), module


@pytest.mark.parametrize("change", ["edit", "add", "remove", "rename"])
def test_another_source_is_another_set(tmp_path: Path, change: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name in ("a.py", "b.py"):
        (package / name).write_text("x = 1\n")
    before = digest(package)
    assert digest(package) == before
    match change:
        case "edit":
            (package / "a.py").write_text("x = 2\n")
        case "add":
            (package / "c.py").write_text("")
        case "remove":
            (package / "b.py").unlink()
        case _:
            (package / "b.py").rename(package / "c.py")
    assert digest(package) != before


def test_a_set_is_found_by_the_names_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    assert not use(tmp_path)
    (tmp_path / f"serving_node.nothing{SUFFIX}").touch()
    (tmp_path / "serving_node.other.cpython-27-x86_64-linux-gnu.so").touch()
    assert use(tmp_path)
    found = sys.meta_path[0]
    assert isinstance(found, CompiledFinder)
    spec = found.find_spec("serving_node.nothing", None)
    assert spec is not None and spec.origin == str(tmp_path / f"serving_node.nothing{SUFFIX}")
    assert found.find_spec("serving_node.other", None) is None


def test_what_was_imported_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / f"{sets.__name__}{SUFFIX}").touch()
    assert not use(tmp_path)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = Path("/nonexistent/set")
    monkeypatch.setattr(compile_modules, "folder", lambda: nowhere)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert compile_modules.main([]) == 1
    assert "there is no C compiler; install one" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert compile_modules.main([]) == 1
    assert "pip install 'flotilla[compile]'" in capsys.readouterr().err


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_modules, "PACKAGE", tmp_path / "empty")
    (tmp_path / "empty" / WORKER).mkdir(parents=True)
    kept = tmp_path / "sets" / "older"
    kept.mkdir(parents=True)

    def failing(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, stdout="cc1: no memory")

    monkeypatch.setattr(subprocess, "run", failing)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(compile_modules.CompileError, match="cc1: no memory"):
        compile_modules.build(tmp_path / "sets" / "new")
    assert list((tmp_path / "sets").iterdir()) == [kept]


def test_sets_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").mkdir()
    monkeypatch.setattr(compile_modules, "sets_folder", lambda: tmp_path)
    assert compile_modules.main(["--remove"]) == 0
    assert not tmp_path.exists()


def test_an_environment_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setattr(compile_modules, "folder", lambda: tmp_path / "a file" / "set")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert compile_modules.main([]) == 1
    assert str(tmp_path / "a file") in capsys.readouterr().err


def test_without_any_set_the_source_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Path:
        raise AssertionError("the digest was computed")

    monkeypatch.setattr(finder, "sets_folder", lambda: tmp_path / "nothing")
    monkeypatch.setattr(finder, "folder", read)
    assert not use()
