"""What may stand in a model's requirements.txt: exact versions with hashes, and no options of pip. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_PINNED = re.compile(
    r"(?P<name>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?)"
    r"\s*(?P<extras>\[[a-z0-9._,\s-]+\])?"
    r"\s*===?\s*(?P<version>[a-z0-9][a-z0-9.!+_-]*)"
    r"\s*(?P<marker>;(?:(?!\s--).)+)?"
    r"(?P<hashes>(?:\s+--hash=(?:sha256|sha384|sha512):[0-9a-f]{64,128})+)",
    re.IGNORECASE,
)
_LARGEST = 1024 * 1024
_MOST_SHOWN = 80


class RequirementsError(Exception):
    """A file cannot be used. The text is a part of a sentence."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What to install, one requirement in a line, in a fixed order."""

    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The file for pip."""
        return "".join(f"{line}\n" for line in self.lines)

    def key(self, *interpreter: str) -> str:
        """Return what names an environment: equal files for equal interpreters have equal names."""
        digest = hashlib.sha256("\n".join(interpreter).encode())
        digest.update(b"\0")
        digest.update(self.text.encode())
        return digest.hexdigest()[:32]


def has_hashes(text: str) -> bool:
    """Return whether a file is meant for us: others may lie beside a model for people to read."""
    return "--hash=" in text


def read_requirements(text: str) -> Requirements:
    """Return the requirements of a file.

    Source: pip's format of requirements files, of which only ``name==version --hash=...`` is taken, with extras and
    markers.

    Raises:
        RequirementsError: a line is something else, or numpy is missing.
    """
    if len(text) > _LARGEST:
        raise RequirementsError("it is larger than 1 MiB")
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _PINNED.fullmatch(line)
        if match is None:
            shown = line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}..."
            raise RequirementsError(f"line {number} is not of the form 'name==version --hash=sha256:...': {shown}")
        found[" ".join(line.split())] = re.sub(r"[-_.]+", "-", match["name"]).lower()
    if "numpy" not in found.values():
        raise RequirementsError("it does not name numpy, which every worker needs")
    return Requirements(tuple(sorted(found)))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines with what continues them, without comments; each with the number of its first line."""
    lines: list[tuple[int, str]] = []
    parts: list[str] = []
    first = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s+)#.*$", "", raw)
        first = first or number
        parts.append(line.removesuffix("\\"))
        if line.endswith("\\"):
            continue
        joined = " ".join(parts).strip()
        if joined:
            lines.append((first, joined))
        parts, first = [], 0
    rest = " ".join(parts).strip()
    return [*lines, (first, rest)] if rest else lines
