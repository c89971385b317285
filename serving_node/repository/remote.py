"""A repository in an object store, brought into a private folder of this machine.

Only objects that changed are read again, several at a time. A load sees a folder like any other: what it needs is
brought first, and files are replaced whole, so that nobody reads half of one.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import structlog

from serving_node.repository.local import PollError
from serving_node.repository.mirror_plan import StoredObject, plan, sort_out

log = structlog.get_logger(__name__)

_DOWNLOADS = 8


class StoreError(Exception):
    """The object store did not do what was asked. One sentence, without credentials."""


class ObjectStore(Protocol):
    """What is needed of an object store. Methods block and may be called from several threads.

    Paths are relative to the repository. All methods raise StoreError.
    """

    def list(self, prefix: str) -> Iterable[StoredObject]:
        """Yield every object below a prefix, which is a whole path, or all when it is empty."""

    def models(self) -> Iterable[str]:
        """Return the names directly below the repository."""

    def read(self, one: StoredObject) -> Iterator[bytes]:
        """Yield the content of a listed object in pieces."""


class RemoteSource:
    """The mirror of a repository. ``name`` is its URL. Safe on any thread; one refresh at a time."""

    def __init__(self, name: str, store: ObjectStore) -> None:
        self.name = name
        self._store = store
        self._root = Path(tempfile.mkdtemp(prefix="flotilla-remote-"))
        self.path = self._root / "models"
        self.path.mkdir()
        self._parts = self._root / "parts"
        self._parts.mkdir()
        self._lock = threading.Lock()
        self._tags: dict[str, str] = {}
        self._folders: set[str] = set()

    def refresh(self, model: str) -> None:
        """Bring one model, or all with an empty name; of the other models only their names.

        Raises:
            PollError: the store cannot be read. What was brought before stays, as do files that came through.
        """
        with self._lock:
            try:
                self._bring(model)
                if model:
                    self._keep_only(set(self._store.models()))
            except (StoreError, OSError) as error:
                raise PollError(f"the model repository {self.name} cannot be read: {error}") from error

    def refresh_names(self) -> None:
        """Bring the names of the models only. Raises PollError."""
        with self._lock:
            try:
                self._keep_only(set(self._store.models()))
            except (StoreError, OSError) as error:
                raise PollError(f"the model repository {self.name} cannot be read: {error}") from error

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _bring(self, model: str) -> None:
        wanted = sort_out(self._store.list(model))
        known = {path: tag for path, tag in self._tags.items() if not model or path.startswith(f"{model}/")}
        todo = plan(known, wanted)
        for path in todo.remove:
            self._remove(path)
        for folder in sorted(self._folders - wanted.folders, reverse=True):
            if not model or folder.startswith(f"{model}/"):
                self._folders.discard(folder)
                with contextlib.suppress(OSError):
                    (self.path / folder).rmdir()
        for folder in wanted.folders:
            (self.path / folder).mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        with ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="download") as pool:
            downloads = [pool.submit(self._fetch, number, one) for number, one in enumerate(todo.fetch)]
            try:
                for download in downloads:
                    download.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if todo.fetch or todo.remove:
            count = len(todo.fetch)
            log.info("repository.mirrored", repository=self.name, fetched=count, removed=len(todo.remove))
        if not model:
            self._keep_only({path.partition("/")[0] for path in (*wanted.objects, *wanted.folders)})

    def _fetch(self, number: int, one: StoredObject) -> None:
        part = self._parts / str(number)
        with part.open("wb") as file:
            for piece in self._store.read(one):
                file.write(piece)
        target = self.path / one.path
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)
        self._tags[one.path] = one.tag

    def _remove(self, path: str) -> None:
        """Remove a file, and the folders that it leaves empty up to its model."""
        target = self.path / path
        target.unlink(missing_ok=True)
        self._tags.pop(path, None)
        parent = target.parent
        while parent not in (self.path, self.path.parent) and not any(parent.iterdir()):
            parent.rmdir()
            parent = parent.parent

    def _keep_only(self, models: set[str]) -> None:
        """Have a folder for each of these models, filled or not, and for no other."""
        for child in self.path.iterdir():
            if child.name not in models:
                shutil.rmtree(child, ignore_errors=True)
        self._tags = {path: tag for path, tag in self._tags.items() if path.partition("/")[0] in models}
        for name in models:
            # what is directly in the repository is a file or a model's folder
            if not name.startswith(".") and not (self.path / name).exists():
                (self.path / name).mkdir()
