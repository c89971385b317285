"""Environments made from requirements: built once, kept on disk, shared by models and by nodes of one machine."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import structlog

from serving_node.backends.python.requirements import Requirements
from serving_node.backends.python.settings import worker_environment

log = structlog.get_logger(__name__)

_INSTALL = Path(__file__).parent / "worker" / "install.py"
_COMPLETE = "complete"
_LOCK_POLL_SECONDS = 0.1
_LONGEST_REASON = 300
_UNREACHABLE = re.compile(
    rb"NewConnectionError|ConnectTimeoutError|NameResolutionError|Temporary failure in name resolution|ProxyError"
)


class BuildError(Exception):
    """An environment cannot be built. The text is a part of a sentence."""


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """Where packages come from: the URL of an index, a folder of wheels, or pip's own choice when empty."""

    place: str = ""

    def lines(self) -> str:
        """Return the lines of a requirements file that say so. Not arguments: a URL may hold a password."""
        if not self.place:
            return ""
        if re.match(r"https?://", self.place):
            return f"--index-url {self.place}\n"
        return f"--no-index\n--find-links {Path(self.place).absolute()}\n"


class EnvironmentStore:
    """The environments in ``folder``, by the key of their requirements. Safe on any thread, and for several nodes.

    An environment counts when its mark is there, which is written last; whoever finds none builds it anew, under a
    lock that the kernel frees with the processes that hold it.
    """

    def __init__(self, folder: Path, index: PackageIndex, deadline_seconds: float) -> None:
        self._folder = folder
        self._index = index
        self._deadline_seconds = deadline_seconds

    def find_or_build(self, requirements: Requirements) -> Path:
        """Return the folder of the environment; blocks while it is built, by this node or another.

        Raises:
            BuildError: pip failed, or it took too long.
        """
        root = self._folder / self.key(requirements)
        if _is_whole(root):
            return root
        deadline = time.monotonic() + self._deadline_seconds
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked(root, deadline) as lock:
                if not _is_whole(root):
                    self._build(root, requirements, lock, deadline)
        except OSError as error:
            raise BuildError(f"{error.filename or self._folder}: {error.strerror or error}") from error
        return root

    def key(self, requirements: Requirements) -> str:
        """Return the name of the environment of these requirements and of the node's interpreter."""
        return requirements.key(sys.version, platform.machine(), sys.base_prefix)

    def log_of(self, key: str) -> Path:
        """Return the file with what pip said when the environment was built last."""
        return self._folder / f"{key}.log"

    @contextlib.contextmanager
    def _locked(self, root: Path, deadline: float) -> Iterator[int]:
        """Hold the lock of one environment; its descriptor is passed on to pip, which may live longer than the node."""
        lock = os.open(root.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise self._too_late() from None
                    time.sleep(_LOCK_POLL_SECONDS)
            yield lock
        finally:
            os.close(lock)

    def _build(self, root: Path, requirements: Requirements, lock: int, deadline: float) -> None:
        begun = time.monotonic()
        log.info("python.environment_building", key=root.name, requirements=len(requirements.lines))
        shutil.rmtree(root, ignore_errors=True)
        venv.create(root, symlinks=True, with_pip=False)
        with self.log_of(root.name).open("w+b") as output:
            self._install(root, requirements, lock, deadline, output)
        mark = root / f"{_COMPLETE}.new"
        mark.write_text(requirements.text)
        mark.replace(root / _COMPLETE)
        log.info("python.environment_built", key=root.name, seconds=round(time.monotonic() - begun, 1))

    def _install(self, root: Path, requirements: Requirements, lock: int, deadline: float, output: BinaryIO) -> None:
        """Run pip. Raises BuildError."""
        found = importlib.util.find_spec("pip")
        runner = Path(found.origin or "").parent / "__pip-runner__.py" if found is not None else None
        if runner is None or not runner.is_file():
            raise BuildError("pip, 22.3 or newer, is not installed beside the node")
        with tempfile.TemporaryDirectory(prefix="flotilla-environment-") as temporary:
            wanted = Path(temporary) / "requirements.txt"
            wanted.write_text(self._index.lines() + requirements.text)
            wanted.chmod(0o600)
            process = subprocess.Popen(
                [
                    str(root / "bin" / "python3"),
                    "-I",
                    *map(str, (_INSTALL, runner)),
                    *("--isolated", "install", "--require-hashes", "--only-binary", ":all:", "--no-input"),
                    *("--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off"),
                    *("--retries", "1", "--timeout", "15", "-r", str(wanted)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=worker_environment(frozenset(), temporary),
                pass_fds=(lock,),
                start_new_session=True,
            )
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise self._too_late() from None
            finally:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if status:
            output.seek(0)
            raise BuildError(failure(output.read(), status))

    def _too_late(self) -> BuildError:
        return BuildError(f"it was not ready within {self._deadline_seconds:.0f} seconds")


def _is_whole(root: Path) -> bool:
    """Return whether an environment was built to its end, and the interpreter that it leans on is still there."""
    return (root / _COMPLETE).exists() and (root / "bin" / "python3").exists()


def failure(said: bytes, status: int) -> str:
    """Return why pip failed, out of what it said."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = errors[0] if errors else f"pip ended with status {status}"
    if _UNREACHABLE.search(said):
        reason = f"the package index cannot be reached; {reason}"
    return reason[:_LONGEST_REASON].rstrip(".")
