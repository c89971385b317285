"""What must be done so that a folder here holds what an object store holds. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_VERSION_MARKER = re.compile(r"[^/]+/[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object: its path below the repository, what changes whenever its content does, and its size in bytes."""

    path: str
    tag: str
    size: int


@dataclass(frozen=True, slots=True)
class Mirror:
    """What a repository holds: objects by path, and folders that are only there as such."""

    objects: Mapping[str, StoredObject]
    folders: frozenset[str]


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """Files to bring and files to remove."""

    fetch: tuple[StoredObject, ...]
    remove: tuple[str, ...]


def sort_out(listed: Iterable[StoredObject]) -> Mirror:
    """Tell objects from markers of folders, and leave out names that do not fit into a folder here.

    Object stores have no folders: tools make empty objects in their place, which look like files.
    """
    everything = {one.path: one for one in listed if _fits(one.path)}
    parents = {path.rpartition("/")[0] for path in everything}
    for parent in list(parents):
        while parent := parent.rpartition("/")[0]:
            parents.add(parent)
    folders = {
        path
        for path, one in everything.items()
        if path in parents or (one.size == 0 and _VERSION_MARKER.match(path) is not None)
    }
    objects = {path: one for path, one in everything.items() if path not in folders}
    return Mirror(objects, frozenset(folders))


def plan(known: Mapping[str, str], wanted: Mirror) -> MirrorPlan:
    """Return the steps from files known by path and tag to what is wanted."""
    fetch = [one for path, one in sorted(wanted.objects.items()) if known.get(path) != one.tag]
    return MirrorPlan(tuple(fetch), tuple(sorted(path for path in known if path not in wanted.objects)))


def _fits(path: str) -> bool:
    parts = path.split("/")
    return all(part not in ("", ".", "..") and "\0" not in part and "\\" not in part for part in parts)
