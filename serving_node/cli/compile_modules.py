"""``flotilla node compile``: machine code of the modules that every request passes, by mypyc."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from serving_node.compiled.sets import MODULES, PACKAGE, SUFFIX, WORKER, WORKER_MODULES, folder, sets_folder

_BUILD_SECONDS = 3600.0
# Run in a folder that has a copy of the source. The types that are not there do not matter for the code.
_SETUP = """
from mypyc.build import mypycify
from setuptools import setup

flags = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
setup(name="node", packages=[], ext_modules=mypycify([*flags, *{paths!r}], opt_level="3", strip_asserts=True))
"""


class CompileError(Exception):
    """The modules could not be compiled. The text is for the person who asked."""


def main(arguments: Sequence[str]) -> int:
    """Compile or remove, tell the outcome, and return the exit status."""
    given = _parser().parse_args(arguments)
    target = folder()
    try:
        if given.remove:
            if sets_folder().exists():
                shutil.rmtree(sets_folder())
            sys.stdout.write("Nodes are interpreted again from their next start; start again those that run.\n")
            return 0
        if target.is_dir():
            sys.stdout.write(f"Compiled already: {target}\n")
            return 0
        count = len(MODULES) + len(WORKER_MODULES)
        sys.stderr.write(f"Compiling {count} modules, which takes some minutes...\n")
        build(target)
    except (CompileError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{target}\n")
    return 0


def build(target: Path) -> None:
    """Compile the modules into ``target``, which appears when all is done; sets for other source are removed.

    Raises:
        CompileError: mypyc or a C compiler is missing, or it failed.
        OSError: the environment cannot be written.
    """
    if importlib.util.find_spec("mypyc") is None or importlib.util.find_spec("setuptools") is None:
        raise CompileError("mypyc and setuptools are missing; install them with: pip install 'flotilla[compile]'")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        raise CompileError("there is no C compiler; install one (Debian: apt-get install gcc python3-dev)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        node, worker, made = (Path(scratch) / name for name in ("node", "worker", "made"))
        shutil.copytree(PACKAGE, node / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        _compile(node, [f"{PACKAGE.name}/{module.replace('.', '/')}.py" for module in MODULES], made)
        # there the modules have no package
        shutil.copytree(PACKAGE / WORKER, worker, ignore=shutil.ignore_patterns("__pycache__"))
        _compile(worker, [f"{module}.py" for module in WORKER_MODULES], made / "worker")
        if target.is_dir():
            return  # somebody else was at it too, and faster
        for old in target.parent.iterdir():
            if not old.name.startswith(".new-"):
                shutil.rmtree(old)
        made.rename(target)


def _compile(source: Path, paths: list[str], into: Path) -> None:
    """Compile modules of a folder; their files are named by them, as are those that mypyc adds."""
    (source / "setup.py").write_text(_SETUP.format(paths=paths))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "built"]
    try:
        ended = subprocess.run(
            command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_BUILD_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"the compiler took more than {_BUILD_SECONDS:.0f} seconds") from None
    if ended.returncode:
        raise CompileError(f"the compiler failed:\n{ended.stdout[-4000:]}")
    into.mkdir()
    built = source / "built"
    for file in built.rglob(f"*{SUFFIX}"):
        shutil.copyfile(file, into / ".".join(file.relative_to(built).parts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flotilla node compile",
        description="Compile the modules that every request passes to machine code: less processor time for each, the"
        " same answers. Nodes of this environment use it from their next start. Needs a C compiler, mypyc and some"
        " minutes; to be repeated after each change of the node's source, otherwise that is interpreted.",
    )
    parser.add_argument("--remove", action="store_true", help="remove what was compiled")
    return parser
