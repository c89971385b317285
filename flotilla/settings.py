"""What the command line reads from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the console is and who asks. The token never appears in ``repr``."""

    url: str
    token: str
    project: str

    def __repr__(self) -> str:
        return f"ClientSettings(url={self.url!r}, project={self.project!r})"


def client_settings(url: str | None, token: str | None, project: str | None) -> ClientSettings:
    """Return flags, else FLOTILLA_URL, FLOTILLA_TOKEN (or FLOTILLA_TOKEN_FILE) and FLOTILLA_PROJECT, else defaults."""
    environment = os.environ  # noqa: TID251
    if not token:
        token_file = environment.get("FLOTILLA_TOKEN_FILE")
        token = Path(token_file).read_text().strip() if token_file else environment.get("FLOTILLA_TOKEN", "")
    return ClientSettings(
        url=(url or environment.get("FLOTILLA_URL") or "http://127.0.0.1:7070").rstrip("/"),
        token=token,
        project=project or environment.get("FLOTILLA_PROJECT") or "default",
    )


def default_data_dir() -> Path:
    """Return FLOTILLA_DATA_DIR or a folder under the user's data home."""
    environment = os.environ  # noqa: TID251
    if explicit := environment.get("FLOTILLA_DATA_DIR"):
        return Path(explicit)
    base = environment.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "flotilla"


def inherited_environment() -> dict[str, str]:
    """Return the environment that children inherit."""
    return dict(os.environ)  # noqa: TID251


def external_database_url() -> str:
    """Return DATABASE_URL when somebody else runs PostgreSQL, else an empty string."""
    return os.environ.get("DATABASE_URL", "")  # noqa: TID251


def external_redis_url() -> str:
    """Return REDIS_URL when somebody else runs Valkey or Redis, else an empty string."""
    return os.environ.get("REDIS_URL", "")  # noqa: TID251
