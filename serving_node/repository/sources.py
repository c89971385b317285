"""Where models come from: folders on this machine, and whatever can be brought into one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Source(Protocol):
    """One repository. ``name`` is what it was called on the command line; ``path`` holds its models now."""

    name: str
    path: Path

    def refresh(self, model: str) -> None:
        """Bring ``path`` up to date for one model, or for all when the name is empty. Blocks.

        Raises:
            PollError: the repository cannot be read.
        """

    def refresh_names(self) -> None:
        """Bring the names of the models up to date. Blocks. Raises PollError."""

    def close(self) -> None:
        """Remove what was brought here. Blocks."""


class LocalSource:
    """A folder on this machine, used where it is."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path

    def refresh(self, model: str) -> None:
        """Do nothing: the folder is always up to date."""

    def refresh_names(self) -> None:
        """Do nothing: the folder is always up to date."""

    def close(self) -> None:
        """Do nothing: the folder is not ours."""
