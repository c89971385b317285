"""Small JSON documents that must survive kill -9: written aside, synced, renamed; readable by the owner only."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_json(path: Path, document: Any) -> None:
    """Replace ``path`` atomically with mode 0600. Blocks on the disk: call it in a thread."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            json.dump(document, target, separators=(",", ":"), sort_keys=True)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> Any:
    """Return the document, or None when there is none or it is not JSON (a broken one is put aside)."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        path.replace(path.with_name(f"{path.name}.broken"))
        return None
