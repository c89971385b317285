"""Secrets at rest: sealed with a key that is derived from the server's secret key."""

from __future__ import annotations

import base64
import functools
import hashlib

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.utils.translation import gettext as _

from registry.errors import StorageFailed


@functools.lru_cache(maxsize=4)
def _box(secret_key: str) -> Fernet:
    derived = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"flotilla node secrets 1")
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))


def seal(secret: str) -> str:
    """Return the secret encrypted and authenticated, as text for a column."""
    return _box(settings.SECRET_KEY).encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    """Return the secret.

    Raises:
        StorageFailed: it was sealed with another key, or was changed.
    """
    try:
        return _box(settings.SECRET_KEY).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise StorageFailed(_("A sealed secret cannot be opened: the server's secret key has changed.")) from None


def digest(secret: str) -> str:
    """Return the SHA-256 of a random secret, hex: what is kept of tokens."""
    return hashlib.sha256(secret.encode()).hexdigest()
