"""Typed readers of the environment: the only place of the control plane that reads it."""

from __future__ import annotations

import os
from pathlib import Path


class SettingError(RuntimeError):
    """A variable is missing or malformed; the message names it."""


def text(name: str, default: str | None = None) -> str:
    """Return the variable, or the content of the file that ``NAME_FILE`` points to, or the default."""
    file = os.environ.get(f"{name}_FILE")  # noqa: TID251
    if file:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise SettingError(f"{name}_FILE: cannot read {file}: {error.strerror}") from error
    value = os.environ.get(name, default)  # noqa: TID251
    if value is None:
        raise SettingError(f"Set {name} (or {name}_FILE).")
    return value


def flag(name: str, default: bool = False) -> bool:
    """Return a boolean written as 1/0, true/false, yes/no or on/off."""
    value = text(name, "1" if default else "0").lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off", ""}:
        return False
    raise SettingError(f"{name} must be true or false, not {value!r}.")


def integer(name: str, default: int) -> int:
    """Return a whole number."""
    value = text(name, str(default))
    try:
        return int(value)
    except ValueError:
        raise SettingError(f"{name} must be a whole number, not {value!r}.") from None


def words(name: str, default: str = "") -> list[str]:
    """Return a comma-separated list without empty members."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def present(*names: str) -> dict[str, str]:
    """Return those of some variables that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}  # noqa: TID251
