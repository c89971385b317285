"""What a model folder holds and when it changed: facts, and what follows from them. Pure.

Source: Triton's rules for reloading (a model is modified when anything below its folder is newer than at its load).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

OWN = ""  # the key of the folder itself among the times


@dataclass(frozen=True, slots=True)
class FolderTimes:
    """When the parts of a model folder changed last.

    ``parts``: by name of each direct child the newest time below it, in nanoseconds; ``OWN`` is the folder itself.
    ``config_part`` is the child that holds the config in force. No parts at all means older than anything.
    """

    parts: Mapping[str, int] = field(default_factory=dict)
    config_part: str = "config.pbtxt"

    def newest(self) -> int:
        """Return the time of the last change, 0 without parts."""
        return max(self.parts.values(), default=0)

    def version_differs(self, newer: FolderTimes, version: int) -> bool:
        """Tell whether ``newer`` has changes of a version, or of what all versions share besides the config."""
        return newer._concerning(version) > self._concerning(version)

    def with_config_at(self, nanoseconds: int) -> FolderTimes:
        """Return these times as if the config had been written at this time."""
        return replace(self, parts={**self.parts, self.config_part: nanoseconds})

    def _concerning(self, version: int) -> int:
        shared = (time for part, time in self.parts.items() if part and not part.isdigit() and part != self.config_part)
        return max(self.parts.get(str(version), 0), max(shared, default=0))


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One model on disk. ``config_text`` is None without a config; ``files`` are in the folder of the first version."""

    name: str
    path: Path
    versions: tuple[int, ...]
    config_text: str | None
    times: FolderTimes
    files: frozenset[str] = frozenset()


@dataclass(frozen=True, order=True, slots=True)
class ModelId:
    """Which model is meant: its name, and its repository where names may stand in several (else empty)."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}::{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Found:
    """The model folders of all repositories. ``duplicates`` stand in several and are in none of the ``paths``."""

    paths: Mapping[ModelId, Path]
    duplicates: frozenset[ModelId] = frozenset()


@dataclass(frozen=True, slots=True)
class Changes:
    """What a look at the repositories asks for. ``load``: new or modified, in order of names."""

    load: tuple[ModelId, ...]
    unload: tuple[ModelId, ...]


def changes(known: Mapping[ModelId, FolderTimes], found: Found, times: Mapping[ModelId, FolderTimes]) -> Changes:
    """Return what must be loaded and unloaded so that what serves follows the folders.

    Args:
        known: the models that were loaded, with the times at their load.
        found: the folders that are there.
        times: the times of the folders that are there.
    """
    load = [key for key in found.paths if key not in known or times[key].newest() > known[key].newest()]
    unload = [key for key in known if key not in found.paths]
    return Changes(tuple(sorted(load)), tuple(sorted(unload)))
