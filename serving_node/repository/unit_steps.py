"""The steps of a unit on this node: fetch, verify, stage. They block, and run in threads of their own.

Loading is the scheduler's matter; see ``loading.Loader``.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from serving_node.contract.control import Unit
from serving_node.contract.digests import config_digest, manifest_digest
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import detect_backend, parse_json
from serving_node.contract.proto import model_config_pb2
from serving_node.contract.signing import Signer
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.fetcher import FetchError, Progress
from serving_node.repository.signers import SignatureRefusedError, check_signed


class StepError(Exception):
    """A step of a unit failed. ``transient`` tells whether the same step may succeed later."""

    def __init__(self, code: str, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.transient = transient


class Fetcher(Protocol):
    """Brings one blob into the store."""

    def fetch(self, sha256: str, size: int, *, progress: Progress, cancelled: threading.Event) -> None:
        """See ``fetcher.BlobFetcher.fetch``."""


class UnitSteps:
    """Blob store, fetcher and folder of staged versions, seen as steps of a unit.

    ``believed_signers``: nothing else than what one of these signed passes; see ``signers``.
    """

    def __init__(
        self, store: BlobStore, fetcher: Fetcher, folder: Path, *, believed_signers: tuple[Signer, ...] = ()
    ) -> None:
        self.store = store
        self._believed_signers = believed_signers
        self._fetcher = fetcher
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def folder(self, name: str, unit: Unit) -> Path:
        """Return the version folder of a unit, staged or not."""
        return self._folder / name / unit.unit / str(unit.version)

    def fetch(self, unit: Unit, progress: Callable[[int], None], cancelled: threading.Event) -> None:
        """Bring what is missing of a unit. ``progress`` gets the bytes of all its files that are here.

        Raises:
            StepError: the code of ``FetchError``.
        """
        sizes = {file.sha256: file.size for file in unit.files}
        done = {sha256: size for sha256, size in sizes.items() if self.store.has(sha256)}
        progress(sum(done.values()))
        for sha256, size in sizes.items():
            if sha256 in done:
                continue

            def report(received: int, sha256: str = sha256) -> None:
                done[sha256] = received
                progress(sum(done.values()))

            try:
                self._fetcher.fetch(sha256, size, progress=report, cancelled=cancelled)
            except FetchError as error:
                raise StepError(error.code, error.message, transient=error.transient) from error

    def verify(self, unit: Unit) -> None:
        """Hash every file of a unit, and check its digests and its signature.

        Raises:
            StepError: digest_mismatch, config_invalid or those of ``check_signed`` for good; blob_lost in passing: it
                is fetched again.
        """
        try:
            manifest = manifest_digest(unit.files)
        except ContractError as error:
            raise StepError("digest_mismatch", error.message) from error
        if manifest != unit.manifest_digest:
            raise StepError("digest_mismatch", "the files of the unit do not have the manifest's digest")
        if config_digest(self._config(unit)) != unit.config_digest:
            raise StepError("digest_mismatch", "the config of the unit does not have the digest it should have")
        for sha256 in {file.sha256 for file in unit.files}:
            if not self.store.verify(sha256):
                raise StepError("blob_lost", f"blob {sha256} was damaged on disk", transient=True)
        try:
            check_signed(unit, self.store.path, self._believed_signers)
        except SignatureRefusedError as error:
            raise StepError(error.code, error.message) from error

    def stage(self, name: str, unit: Unit) -> Path:
        """Build the version folder of a unit anew from its blobs, and return it. Files are links where they can be.

        Raises:
            StepError: disk_error.
        """
        target = self.folder(name, unit)
        building = self._folder / f".{unit.unit}.building"
        try:
            shutil.rmtree(building, ignore_errors=True)
            (building / str(unit.version)).mkdir(parents=True, mode=0o700)  # an ensemble has no files
            for file in unit.files:
                place = building / str(unit.version) / file.path
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _link_or_copy(self.store.path(file.sha256), place)
            shutil.rmtree(target.parent, ignore_errors=True)
            target.parent.parent.mkdir(exist_ok=True, mode=0o700)
            building.rename(target.parent)
        except OSError as error:
            shutil.rmtree(building, ignore_errors=True)
            raise StepError("disk_error", f"cannot stage: {error.strerror or error}", transient=True) from error
        return target

    def config(self, name: str, unit: Unit) -> model_config_pb2.ModelConfig:
        """Return the config of a unit under its served name, with its backend.

        Raises:
            StepError: config_invalid.
        """
        config = self._config(unit)
        config.name = name
        try:
            return detect_backend(config, {file.path.split("/", 1)[0] for file in unit.files}, model_name=name)
        except ContractError as error:
            raise StepError("config_invalid", error.message) from error

    def unstage(self, name: str, unit_id: str) -> None:
        """Remove the folder of a unit; harmless when there is none."""
        shutil.rmtree(self._folder / name / unit_id, ignore_errors=True)

    def clear(self, keep_partials: Iterable[str]) -> None:
        """Remove what an earlier process staged or half fetched, except downloads that are still wanted."""
        for child in self._folder.iterdir():
            shutil.rmtree(child, ignore_errors=True)
        self.store.drop_partials(keep_partials)

    @staticmethod
    def _config(unit: Unit) -> model_config_pb2.ModelConfig:
        try:
            return parse_json(unit.config)
        except ContractError as error:
            raise StepError("config_invalid", error.message) from error


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        # Another filesystem, or one without hard links.
        shutil.copyfile(source, target)
