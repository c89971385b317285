"""What is run in the sandbox, what it sees and what it may take."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What an interpreter and its libraries need of the system. Nothing of /etc but where libraries are.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
# Engines ask how many processors there are, and of what make.
_PROCESSORS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_PACKAGES = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may take. ``memory_bytes`` is for all its processes together, ``file_bytes`` for one file.

    ``scratch_bytes`` bounds the temporary folder, which is memory as well and not part of ``memory_bytes``.
    ``cpu_seconds`` is per process, ``tasks`` counts processes and threads.
    """

    seconds: float = 120.0
    memory_bytes: int = 4 << 30
    scratch_bytes: int = 256 << 20
    file_bytes: int = 256 << 20
    cpu_seconds: int = 600
    tasks: int = 256
    open_files: int = 1024
    output_bytes: int = 64 << 10
    answer_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder that the command sees at ``inside``, and cannot change."""

    outside: Path
    inside: str


@dataclass(frozen=True, slots=True)
class Command:
    """A program with its arguments, the folders it may read and what stays hidden inside of those.

    The environment is empty but for ``environment`` and what an interpreter needs. Descriptor 3 takes its answer.
    """

    arguments: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()

    def to_json(self, limits: Limits) -> dict[str, Any]:
        """Return what the program that builds the sandbox reads."""
        mounts = [*_as_they_are(_places()), *((str(mount.outside), mount.inside) for mount in self.mounts)]
        return {
            "arguments": list(self.arguments),
            "environment": {**_ENVIRONMENT, **self.environment},
            "mounts": [[outside, inside] for outside, inside in mounts],
            "hidden": [str(path) for path in self.hidden],
            "seconds": limits.seconds,
            "memory_bytes": limits.memory_bytes,
            "scratch_bytes": limits.scratch_bytes,
            "file_bytes": limits.file_bytes,
            "cpu_seconds": limits.cpu_seconds,
            "tasks": limits.tasks,
            "open_files": limits.open_files,
        }


_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108  the sandbox's own
    "TMPDIR": "/tmp",  # noqa: S108
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}


def _places() -> list[str]:
    """Return the folders of the system and of this interpreter, parents before what they hold."""
    own = [sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).resolve().parent.parent)]
    # where packages are installed; other folders of the path hold this product and whatever lies beside it
    own += [path for path in sys.path if Path(path).name in _PACKAGES]
    found = {str(Path(path).absolute()) for path in (*_SYSTEM, *_PROCESSORS, *own) if path and Path(path).exists()}
    # A whole disk or somebody's home is no place of an interpreter.
    found -= {"/", str(Path("~").expanduser())}
    return sorted(found)


def _as_they_are(places: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield each place at its own path, without those that lie inside of another one."""
    taken: list[str] = []
    for place in places:
        if not any(place.startswith(f"{other}/") for other in taken):
            taken.append(place)
            yield place, place
