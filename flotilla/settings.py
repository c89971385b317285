"""What the command line reads from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flotilla.profiles import ProfileError, Profiles

DEFAULT_URL = "http://127.0.0.1:7070"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the console is and who asks. The token never appears in ``repr``.

    ``profile`` is the name of the profile that was read, empty when none was.
    """

    url: str
    token: str
    project: str
    profile: str = ""

    def __repr__(self) -> str:
        return f"ClientSettings(url={self.url!r}, project={self.project!r})"


def client_settings(
    url: str | None, token: str | None, project: str | None, profile: str | None = None
) -> ClientSettings:
    """Return flags, else the environment, else the profile, else defaults.

    The environment: FLOTILLA_URL, FLOTILLA_TOKEN (or FLOTILLA_TOKEN_FILE), FLOTILLA_PROJECT, FLOTILLA_PROFILE. The
    token of a profile is sent only to the address of that profile.

    Raises:
        ProfileError: the profile that was named is not there, or its file cannot be used.
        OSError: the file of the token cannot be read.
    """
    environment = os.environ  # noqa: TID251
    if not token:
        token_file = environment.get("FLOTILLA_TOKEN_FILE")
        token = Path(token_file).read_text().strip() if token_file else environment.get("FLOTILLA_TOKEN", "")
    asked = profile or environment.get("FLOTILLA_PROFILE", "")
    name, kept = profiles().get(asked)
    if asked and kept is None:
        raise ProfileError(f"There is no profile {asked}; sign in with: flotilla login --profile {asked}")
    url = (url or environment.get("FLOTILLA_URL") or (kept.url if kept else "") or DEFAULT_URL).rstrip("/")
    fits = kept is not None and kept.url == url
    return ClientSettings(
        url=url,
        token=token or (kept.token if kept is not None and fits else ""),
        project=project
        or environment.get("FLOTILLA_PROJECT")
        or (kept.project if kept is not None and fits else "")
        or "default",
        profile=name if fits else "",
    )


def profiles() -> Profiles:
    """Return the profiles of this user: in FLOTILLA_CONFIG_DIR, else below the user's config home."""
    environment = os.environ  # noqa: TID251
    if explicit := environment.get("FLOTILLA_CONFIG_DIR"):
        return Profiles(Path(explicit))
    base = environment.get("XDG_CONFIG_HOME")
    return Profiles((Path(base) if base else Path.home() / ".config") / "flotilla")


def push_records_dir() -> Path:
    """Return where pushes that are under way are noted: in FLOTILLA_CACHE_DIR, else below the user's cache home."""
    environment = os.environ  # noqa: TID251
    if explicit := environment.get("FLOTILLA_CACHE_DIR"):
        return Path(explicit) / "pushes"
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "flotilla" / "pushes"


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What a CI job has to prove who it is: a token at hand, or an address that gives one."""

    token: str = ""
    request_url: str = ""
    request_token: str = ""

    def __repr__(self) -> str:
        return "JobIdentity(...)"


def job_identity(variable: str) -> JobIdentity:
    """Return the token in ``variable`` (GitLab's id_tokens), else GitHub's address for one; empty outside of CI."""
    environment = os.environ  # noqa: TID251
    return JobIdentity(
        token=environment.get(variable, ""),
        request_url=environment.get("ACTIONS_ID_TOKEN_REQUEST_URL", ""),
        request_token=environment.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN", ""),
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
