"""The model folders of all repositories of a node. Blocks: call it in a thread, but for ``find_all``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from serving_node.repository import local
from serving_node.repository.model_folder import Changes, FolderTimes, Found, ModelId, changes
from serving_node.repository.sources import LocalSource, Source


class Folders:
    """Repositories in the order of the command line; one that is named twice counts once."""

    def __init__(self, repositories: Sequence[Path | Source], *, namespacing: bool, config_name: str) -> None:
        sources = (LocalSource(one) if isinstance(one, Path) else one for one in repositories)
        self._sources = tuple({source.name: source for source in sources}.values())
        self._namespacing = namespacing
        self._config_name = config_name

    def find_all(self) -> Found:
        """Return the model folders as they are here now. Raises PollError."""
        return local.find_models(self._places())

    def look(self, known: Mapping[ModelId, FolderTimes]) -> tuple[Found, Changes]:
        """Bring all repositories up to date; return their folders and what must be done. Raises PollError."""
        for source in self._sources:
            source.refresh("")
        found = self.find_all()
        times = {key: local.read_times(path, self._config_name) for key, path in found.paths.items()}
        return found, changes(known, found, times)

    def find(self, name: str) -> Found:
        """Bring one name up to date; return its folders. Raises PollError."""
        for source in self._sources:
            source.refresh(name)
        return local.locate(self._places(), name)

    def refresh_names(self) -> None:
        """Bring the names of the models up to date. Raises PollError."""
        for source in self._sources:
            source.refresh_names()

    def close(self) -> None:
        """Remove what was brought here."""
        for source in self._sources:
            source.close()

    def _places(self) -> list[tuple[str, Path]]:
        return [(source.name if self._namespacing else "", source.path) for source in self._sources]
