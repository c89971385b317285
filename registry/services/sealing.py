"""Secrets at rest: sealed with a key that is derived from the server's secret key."""

from __future__ import annotations


def seal(secret: str) -> str:
    """Return the secret encrypted and authenticated, as text for a column."""
    raise NotImplementedError


def unseal(sealed: str) -> str:
    """Return the secret.

    Raises:
        StorageFailed: it was sealed with another key, or was changed.
    """
    raise NotImplementedError


def digest(secret: str) -> str:
    """Return the SHA-256 of a random secret, hex: what is kept of tokens."""
    raise NotImplementedError
