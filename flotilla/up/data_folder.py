"""The data folder: its lock, its secrets (made once, mode 0600), its ports, and who is running in it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Below the range from which kernels take ports of outgoing connections.
_FIRST_PORT, _PORTS = 20000, 12000


class AlreadyRunning(RuntimeError):
    """Another supervisor holds the folder. ``info`` says where it is, as far as it has written so."""

    def __init__(self, info: dict[str, Any]) -> None:
        super().__init__("already running")
        self.info = info


@dataclass(slots=True)
class DataFolder:
    """An exclusively held data folder."""

    path: Path
    _lock: int | None = field(default=None, repr=False)

    def acquire(self) -> None:
        """Create the folder and take its lock; the kernel gives the lock back when the process dies.

        Raises:
            AlreadyRunning: somebody else holds it.
        """
        if not self.path.exists():
            self.path.mkdir(parents=True)
            # others may pass through (as root, PostgreSQL runs as another user) but neither list nor read anything
            self.path.chmod(0o711)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise AlreadyRunning(self.read_run_info()) from None
        self._lock = lock

    def release(self) -> None:
        """Give the folder back."""
        (self.path / "run.json").unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write_run_info(self, info: dict[str, Any]) -> None:
        """Tell other commands who runs here and where."""
        self._write("run.json", json.dumps(info))

    def read_run_info(self) -> dict[str, Any]:
        """Return what the running supervisor wrote, or an empty dict."""
        try:
            return dict(json.loads((self.path / "run.json").read_text()))
        except (OSError, ValueError):
            return {}

    def write_environment(self, environment: dict[str, str]) -> None:
        """Keep what other commands need to reach the same database and broker (mode 0600: it holds passwords)."""
        self.secret_file("environment")
        self._write("secrets/environment", json.dumps(environment))

    def read_environment(self) -> dict[str, str]:
        """Return what ``write_environment`` kept, or an empty dict."""
        try:
            return dict(json.loads((self.path / "secrets" / "environment").read_text()))
        except (OSError, ValueError):
            return {}

    def secret(self, name: str, length: int = 32) -> str:
        """Return a random secret of the folder, made on the first call."""
        return self.secret_file(name, length).read_text().strip()

    def secret_file(self, name: str, length: int = 32) -> Path:
        """Return the 0600 file that holds the secret."""
        folder = self.path / "secrets"
        folder.mkdir(mode=0o700, exist_ok=True)
        target = folder / name
        if not target.exists():
            self._write(f"secrets/{name}", secrets.token_urlsafe(length))
        return target

    def port(self, name: str, preferred: int | None = None) -> int:
        """Return the port of an embedded server: the one of the last start, else the preferred or any free one.

        Without a preference each folder has one of its own, so that two first starts at once do not choose the same.
        """
        if preferred is None:
            digest = hashlib.sha256(f"{self.path.resolve()}/{name}".encode()).digest()
            preferred = _FIRST_PORT + int.from_bytes(digest[:4], "big") % _PORTS
        target = self.path / "ports.json"
        ports: dict[str, int] = {}
        if target.exists():
            ports = json.loads(target.read_text())
        if name not in ports or not is_free(ports[name]):
            ports[name] = preferred if is_free(preferred) else free_port()
            self._write("ports.json", json.dumps(ports))
        return ports[name]

    def _write(self, name: str, content: str) -> None:
        """Write atomically with mode 0600."""
        target = self.path / name
        scratch = target.with_name(f".{target.name}.new")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        scratch.replace(target)


def is_free(port: int) -> bool:
    """True when a server could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a loopback port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
