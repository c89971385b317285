"""A version from local files to its checks, going on with what an earlier process began."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flotilla.sdk.push_record import PushRecord
from flotilla.sdk.quantities import counted, size
from flotilla.sdk.transport import ApiError, Transport
from flotilla.sdk.upload import FileProgress, FileThere, files_there, is_same_content, upload_files

Json = dict[str, Any]

# What the server says when the version or an upload of the earlier process is gone, has ended, or is somebody else's.
_GONE = frozenset({403, 404, 409, 410})
_SUBMITTED = frozenset({"validating", "ready"})


@dataclass(frozen=True, slots=True)
class Push:
    """One push. ``versions`` is the address of the model's versions, ``body`` what makes one.

    ``notice`` hears a sentence when an earlier push is gone on with, or cannot be.
    """

    transport: Transport
    versions: str
    body: Json
    files: Mapping[str, Path]
    conversion: Json | None
    record: PushRecord
    progress: FileProgress | None
    notice: Callable[[str], None]

    def run(self) -> tuple[Json, Json]:
        """Make a version, or finish the one in the record; return it and the operation of its checks.

        Raises:
            ApiError: refused.
        """
        if self.record.is_resumed:
            try:
                found = self._go_on()
            except ApiError as error:
                if error.status not in _GONE:
                    raise
                self.notice(
                    f"The earlier push of these files cannot be gone on with, so it starts anew: {error.detail}"
                )
            else:
                if found is not None:
                    return found
            self._abandon()
            self.record.restart()
        version = self._begin()
        self.record.note_files(self.files)
        return self._send(version, {})

    def _go_on(self) -> tuple[Json, Json] | None:
        """Finish the version of the record; None when that cannot be, and why was told."""
        # Perhaps only the answer of this got lost: by its key the server knows it again.
        version = self._begin()
        address = self._address(version)
        version = dict(self.transport.send("GET", address).json())
        if self.record.operation or version["state"] in _SUBMITTED:
            self.notice("An earlier push has sent these files; its checks are followed.")
            return version, self._submit(address)
        if version["state"] != "uploading":
            self.notice(f"The earlier push of these files has expired or ended ({version['state']}); it starts anew.")
            return None
        there = files_there(self.transport, address)
        changed = [path for path, one in there.items() if one.is_whole and not self._is_same(path, one)]
        if changed:
            self.notice(f"{changed[0]} changed after an earlier push had sent it; it starts anew.")
            return None
        whole = sum(one.is_whole for one in there.values())
        found = f"{whole} of {counted(len(self.files), 'file')}, {size(sum(one.offset for one in there.values()))}"
        self.notice(f"Going on with an earlier push; there already: {found}.")
        self.record.note_files(self.files)
        return self._send(version, there)

    def _is_same(self, path: str, there: FileThere) -> bool:
        file = self.files.get(path)
        return file is not None and (self.record.was_sent(path, file) or is_same_content(file, there))

    def _begin(self) -> Json:
        if self.record.version:
            return {"id": self.record.version}
        headers = self.record.key("create")
        version = dict(self.transport.send("POST", self.versions, json=self.body, headers=headers, once=True).json())
        self.record.note(version=version["id"])
        return version

    def _send(self, version: Json, there: Mapping[str, FileThere]) -> tuple[Json, Json]:
        address = self._address(version)
        if self.conversion is not None:
            self.transport.send("POST", f"{address}conversion", json={"report": self.conversion})
        upload_files(
            self.transport,
            version=address,
            version_id=version["id"],
            files=self.files,
            progress=self.progress,
            there=there,
        )
        return version, self._submit(address)

    def _submit(self, address: str) -> Json:
        if self.record.operation:
            return dict(self.transport.send("GET", f"operations/{self.record.operation}/").json())
        headers = self.record.key("submit")
        operation = dict(self.transport.send("POST", f"{address}submit", json={}, headers=headers, once=True).json())
        self.record.note(operation=operation["id"])
        return operation

    def _abandon(self) -> None:
        """Give the half-made version up; the server would do so by itself after a while."""
        if self.record.version:
            with contextlib.suppress(ApiError):
                self.transport.send(
                    "POST", f"{self.versions}{self.record.version}/abandon", json={"reason": "pushed anew"}
                )

    def _address(self, version: Json) -> str:
        return f"{self.versions}{version['id']}/"
