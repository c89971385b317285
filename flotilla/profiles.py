"""Profiles: where a console is and the token for it, in the user's config folder, readable by the user alone."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DEFAULT = "default"


class ProfileError(Exception):
    """The file cannot be used; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One console. ``expires_at`` (ISO 8601) is when the token ends, empty when it does not or nobody knows."""

    url: str
    token: str = field(repr=False)
    project: str = ""
    username: str = ""
    expires_at: str = ""


class Profiles:
    """The file ``profiles.json`` of a folder: profiles by name, and which one is used when none is named."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "profiles.json"

    def get(self, name: str = "") -> tuple[str, Profile | None]:
        """Return the name (the current one when it is empty) and the profile, None when there is none.

        Raises:
            ProfileError: the file is damaged, or others can read it.
        """
        document = self._read()
        name = name or str(document.get("current") or DEFAULT)
        row = document["profiles"].get(name)
        return name, _profile(row) if isinstance(row, dict) else None

    def names(self) -> list[str]:
        """Return the names there are."""
        return sorted(self._read()["profiles"])

    def save(self, name: str, profile: Profile) -> None:
        """Keep a profile and make it the current one."""
        document = self._read()
        document["profiles"][name] = asdict(profile)
        document["current"] = name
        self._write(document)

    def remove(self, name: str) -> bool:
        """Forget a profile; return whether there was one."""
        document = self._read()
        found = document["profiles"].pop(name, None) is not None
        if document.get("current") == name:
            document["current"] = min(document["profiles"], default="")
        if found:
            self._write(document)
        return found

    def _read(self) -> dict[str, Any]:
        try:
            with self.path.open() as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise ProfileError(f"Others can read {self.path} (mode {mode:04o}): chmod 600 {self.path}")
                document = json.load(file)
        except FileNotFoundError:
            return {"profiles": {}}
        except (OSError, ValueError) as error:
            raise ProfileError(f"{self.path} cannot be read: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("profiles"), dict):
            raise ProfileError(f"{self.path} is no file of profiles.")
        return document

    def _write(self, document: dict[str, Any]) -> None:
        """Replace the file in one step; it is never there with other rights or half of its text."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        new.unlink(missing_ok=True)
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(document, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise ProfileError(f"{self.path} cannot be written: {error}") from None


def _profile(row: dict[str, Any]) -> Profile:
    known = {name: str(row.get(name) or "") for name in Profile.__dataclass_fields__}
    return Profile(**known)
