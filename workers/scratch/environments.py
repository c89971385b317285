"""Environments with the packages of Python models, made outside of the sandbox and shown in it.

Fetching runs nothing of a package: exact versions with hashes, wheels only, by the node's own builder. They are kept
for the next trial that asks for the same, and go when nobody has for a while or they take too much room.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

import serving_node.contract
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import ModelConfig, parse_pbtxt
from workers.scratch.report import ScratchFailed

NO_INDEX = "none"
_REQUIREMENTS = "requirements.txt"
_PROGRAM = "serving_node.backends.python.prepare"
_COMPLETE = "complete"
_HASHES = b"--hash="
# as the node reads the config
_NAMED, _MODEL_DIRECTORY = "EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY"
_LOOK_SECONDS = 1.0
_ATTEMPTS = 3
_KEEP = timedelta(days=7)
_KEEP_BROKEN = timedelta(days=1)


class PackagesMissing(Exception):
    """The packages that a model asks for cannot be had on this host; the message says why, ``log`` is what pip said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@contextlib.contextmanager
def environments_for(repository: Path, is_stopped: Callable[[], bool]) -> Iterator[tuple[Path, ...]]:
    """Give the environments of the models in a repository, which stay as long as the block runs; blocks.

    Raises:
        PackagesMissing: one cannot be made here.
        ScratchFailed: a package is another than its hash says, or it was stopped.
    """
    files = [str(file) for folder in sorted(repository.glob("*/*")) if (file := _requirements_of(folder))]
    if not files:
        yield ()
        return
    if settings.PACKAGE_INDEX == NO_INDEX:
        raise PackagesMissing(
            _(
                "It needs the packages of its requirements.txt, and none are fetched here: FLOTILLA_PACKAGE_INDEX may"
                " name an index or a folder of wheels."
            )
        )
    with contextlib.ExitStack() as held:
        found = _held(_folder(), files, is_stopped, held)
        environments_collect(datetime.now().astimezone())
        yield found


def _held(
    folder: Path, files: list[str], is_stopped: Callable[[], bool], held: contextlib.ExitStack
) -> tuple[Path, ...]:
    """Return the environments, which nobody removes until ``held`` is closed."""
    for _attempt in range(_ATTEMPTS):
        answer = _prepared(folder, files, is_stopped)
        if answer["reason"]:
            _refuse(answer)
        found = tuple(Path(one) for one in dict.fromkeys(answer["environments"]))
        for environment in found:
            held.enter_context(_locked(environment, fcntl.LOCK_SH))
        if all((environment / _COMPLETE).exists() for environment in found):
            for environment in found:
                os.utime(environment / _COMPLETE)
            return found
        held.close()  # one was removed before it was held
    raise PackagesMissing(_unmade(_("they are removed as soon as they are there; raise FLOTILLA_PACKAGE_BYTES")))


def environments_collect(now: datetime) -> int:
    """Remove environments that nobody asked for in a week, and the oldest while all take too much room.

    Returns how many. One that is in use stays.
    """
    folder = _folder()
    kept: list[tuple[float, int, Path]] = []
    removed = 0
    for environment in folder.iterdir() if folder.is_dir() else ():
        if not environment.is_dir():
            continue
        with contextlib.suppress(OSError):
            mark = environment / _COMPLETE
            used = (mark if mark.exists() else environment).stat().st_mtime
            if now.timestamp() - used > (_KEEP if mark.exists() else _KEEP_BROKEN).total_seconds():
                removed += _remove(environment)
            else:
                kept.append((used, _size(environment), environment))
    total = sum(size for _used, size, _path in kept)
    for _used, size, environment in sorted(kept):
        if total <= settings.PACKAGE_BYTES:
            break
        if _remove(environment):
            removed, total = removed + 1, total - size
    return removed


def _folder() -> Path:
    return Path(settings.DATA_DIR).absolute() / "sandbox-environments"


def _requirements_of(folder: Path) -> Path | None:
    """Return the file that a node would make an environment from for the version in a folder of a repository."""
    path = folder.parent / "config.pbtxt"
    try:
        config = parse_pbtxt(path.read_text()) if path.is_file() else ModelConfig()
    except ContractError:
        return None
    if config.backend != "python" and (config.backend or not (folder / "model.py").is_file()):
        return None
    named = config.parameters[_NAMED].string_value if _NAMED in config.parameters else ""
    if named:
        file = Path(named.replace(_MODEL_DIRECTORY, str(folder.parent))).resolve()
        is_own = file.suffix == ".txt" and file.is_relative_to(folder.parent.resolve())
        return file if is_own and file.is_file() else None
    file = folder / _REQUIREMENTS
    return file if file.is_file() and _HASHES in file.read_bytes() else None


def _prepared(folder: Path, files: list[str], is_stopped: Callable[[], bool]) -> dict[str, Any]:
    """Run the builder to its end. Raises PackagesMissing and ScratchFailed."""
    seconds = float(settings.SANDBOX_SECONDS)
    order = {"folder": str(folder), "index": settings.PACKAGE_INDEX, "seconds": seconds, "files": files}
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as temporary:
            return _run(json.dumps(order), Path(temporary), is_stopped, time.monotonic() + 2 * seconds)
    except OSError as error:
        raise PackagesMissing(_unmade(error.strerror or str(error))) from error


def _run(order: str, temporary: Path, is_stopped: Callable[[], bool], deadline: float) -> dict[str, Any]:
    output = temporary / "output"
    with output.open("wb") as file, (temporary / "order").open("w+") as asked:
        asked.write(order)  # not an argument: the address of an index may hold a password
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-s", "-m", _PROGRAM],
            stdin=asked,
            stdout=file,
            stderr=file,
            cwd=temporary,
            env=_environment(temporary),
        )
    try:
        while process.poll() is None:
            if is_stopped():
                raise ScratchFailed(_("It was stopped."))
            if time.monotonic() > deadline:
                raise PackagesMissing(_unmade(_("it took too long")))
            if _size(temporary.parent) > 2 * settings.PACKAGE_BYTES:
                raise PackagesMissing(_unmade(_("they take more room than FLOTILLA_PACKAGE_BYTES allows")))
            if shutil.disk_usage(temporary).free < settings.STAGING_FREE_BYTES:
                raise PackagesMissing(_unmade(_("the disk is almost full")))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)  # pip ends with it
            process.wait()
    said = output.read_text(errors="replace")
    try:
        answer: dict[str, Any] = json.loads(said.strip().rpartition("\n")[2])
    except ValueError as error:
        raise PackagesMissing(_unmade(_("the builder ended without an answer")), said) from error
    return answer


def _environment(temporary: Path) -> dict[str, str]:
    """Return what the builder may know of the worker: how to reach the network, nothing else."""
    package = Path(serving_node.contract.__file__).resolve().parent.parent
    return {**settings.PACKAGE_ENVIRONMENT, "PYTHONPATH": str(package.parent), "TMPDIR": str(temporary)}


def _refuse(answer: dict[str, Any]) -> None:
    log = str(answer["log"]).replace("\0", "")
    if answer["is_damaged"]:
        raise ScratchFailed(_("A package of its requirements.txt is not the one that its hash names."), log)
    raise PackagesMissing(_unmade(str(answer["reason"])), log)


def _unmade(why: str) -> str:
    text = _(
        "The packages of its requirements.txt cannot be had: %(why)s. FLOTILLA_PACKAGE_INDEX may name another index or"
        " a folder of wheels."
    )
    return text % {"why": why.rstrip(".")}


@contextlib.contextmanager
def _locked(environment: Path, kind: int) -> Iterator[bool]:
    """Hold the lock that the builder takes too; gives whether it was to be had at once, where that was asked for."""
    lock = os.open(environment.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, kind)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _remove(environment: Path) -> bool:
    with _locked(environment, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
        if is_ours:
            (environment / _COMPLETE).unlink(missing_ok=True)  # first: half an environment is none
            shutil.rmtree(environment, ignore_errors=True)
        return is_ours


def _size(folder: Path) -> int:
    """Return the bytes of a folder; what goes away meanwhile does not count."""
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total
